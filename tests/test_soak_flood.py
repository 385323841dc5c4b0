"""A decoder that is wrong all night floods nothing: all that is found is counted, and the first of each is kept."""

from collections import Counter
from dataclasses import replace
from io import StringIO

from rich.console import Console

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.soak.about import About
from specqual.soak.epoch import MOST
from specqual.soak.glance import glance, words
from specqual.soak.journal import KEPT, NAME, Journal
from specqual.soak.night import judged
from specqual.soak.page import page
from specqual.soak.records import CUT, Epoch, Served, Violation
from specqual.soak.run import BUNDLES, Soak
from specqual.soak.view import Plain
from specqual.soak.worker import World

ABOUT = About("optimised", Setup(target=fixtures.path("nano/dense")), 3, ("storm", "gaps"), 0.1)
EACH = 6  # violations of one epoch


def wrong(scenario: str, number: int, *oracles: str) -> Epoch:
    """An epoch in which each of these oracles found as much."""
    told = tuple(Violation(oracle, f"wrong in {number}", {"epoch": number}) for oracle in oracles for _ in range(EACH))
    return Epoch(scenario, number, Verdict.VIOLATED, f"{number}", violations=told)


def flooded(folder, epochs: int = 10) -> Journal:
    """A run in which two oracles, and in another scenario one, find something in every epoch."""
    journal = Journal.open(folder / NAME)
    soak = Soak(ABOUT, journal, 1, 1.0)
    soak.segment = journal.begin(ABOUT.json())
    for number in range(epochs):
        soak._record(wrong("storm", number, "regret", "state"), Served(0, number, 1.0, 0.5))
        soak._record(wrong("gaps", number, "regret"), Served(0, number, 1.0, 0.5))
    return journal


def test_of_each_oracle_and_scenario_the_first_are_kept_and_all_are_counted(tmp_path):
    journal = flooded(tmp_path)
    kept = Counter((one.scenario, one.violation.oracle) for one in journal.violations())
    assert kept == {("storm", "regret"): KEPT, ("storm", "state"): KEPT, ("gaps", "regret"): KEPT}
    assert journal.violations()[0].violation.detail == "wrong in 0"
    assert journal.found() == {"regret": 20 * EACH, "state": 10 * EACH} and journal.kept() == 3 * KEPT
    assert len([*(tmp_path / BUNDLES).iterdir()]) == 3 * KEPT


def test_a_run_that_is_resumed_keeps_no_more(tmp_path):
    flooded(tmp_path).close()
    journal = Journal.open(tmp_path / NAME)
    kept = journal.add(journal.begin(ABOUT.json()), wrong("storm", 99, "regret", "events"), Served(0, 0.0, 1.0, 0.5))
    assert {one.violation.oracle for one in kept} == {"events"} and len(kept) == EACH
    assert journal.found()["regret"] == 21 * EACH


def test_what_is_beyond_is_told_in_the_verdict_the_live_view_and_on_the_page(tmp_path):
    journal = flooded(tmp_path)
    night = judged(journal)
    assert "20 of 20 epochs, 180 findings of which 60 are kept" in night.decisions["traffic"].detail
    assert words(glance(journal))["violations"] == "180, 60 kept"
    text = page(journal, night, running=False)
    assert "and 40 more in the journal" in text and "and 120 more that were counted only" in text
    (tmp_path / "few").mkdir()
    few = flooded(tmp_path / "few", epochs=1)
    assert "counted only" not in page(few, judged(few), running=False)
    assert words(glance(few))["violations"] == "18" and "kept" not in judged(few).decisions["traffic"].detail


def test_counts_are_the_same_however_little_is_kept(tmp_path):
    """An epoch's row says what it found, and not what there was room for."""
    first, last = Journal.open(tmp_path / "one"), flooded(tmp_path)
    segment = first.begin(ABOUT.json())
    first.add(segment, wrong("storm", 50, "regret"), Served(0, 0.0, 1.0, 0.5))
    last.add(1, wrong("storm", 50, "regret"), Served(0, 0.0, 1.0, 0.5))
    query = "SELECT bins FROM histograms WHERE scenario = 'storm' AND epoch = 50"
    assert [j.connection.execute(query).fetchall() for j in (first, last)] == [[(f'{{"regret":{EACH}}}',)]] * 2


def test_news_are_read_from_behind_the_last_one_seen(tmp_path):
    journal = flooded(tmp_path)
    every = journal.violations()
    assert journal.violations(every[-4]) == every[-3:] and journal.latest(3) == every[-3:]
    assert journal.violations(every[-1]) == [] and journal.violations(most=2) == every[:2]
    plans = []
    journal.connection.set_trace_callback(plans.append)
    journal.violations(every[-4])
    journal.connection.set_trace_callback(None)
    (step,) = [told for *_, told in journal.connection.execute(f"EXPLAIN QUERY PLAN {plans[0]}")]
    assert "SEARCH" in step and "violations_by_time" in step  # neither sorted nor read from the start


def test_each_violation_is_told_once_however_the_others_are_named(tmp_path):
    """Scenarios come in no order of their names, and what is noted of processes has places below zero."""
    journal, out = Journal.open(tmp_path / NAME), StringIO()
    segment = journal.begin(ABOUT.json())
    with Plain(journal, Console(file=out, width=200)) as plain:
        for number, scenario in enumerate(("storm", "gaps", "storm")):
            journal.add(segment, wrong(scenario, number, "regret"), Served(0, 0.0, 1.0, 0.5))
            plain._news()
        journal.note("gaps", 7, Violation(CUT, "had no end", {}))
        plain._news()
    lines = [line for line in out.getvalue().splitlines() if ": wrong in" in line]
    assert len(lines) == 3 * EACH and "INCONCLUSIVE gaps epoch 7, cut off: had no end" in out.getvalue()


def test_bundles_are_gathered_for_the_first_of_each_oracle_and_none_hides_another():
    world = World(replace(ABOUT, decoder="tests.test_soak_flood:mute"))
    epoch = world.play(("gaps", 0)).epoch
    world.close()
    found = Counter(one.oracle for one in epoch.violations)
    bundles = Counter(one.oracle for one in epoch.violations if one.bundle is not None)
    assert found["events"] > MOST and bundles["events"] == MOST
    assert bundles == {oracle: min(count, MOST) for oracle, count in found.items()} and len(found) > 1


def mute(setup):
    """Says each event twice, and another token than it chose."""
    from specqual.contract import Tokens
    from specqual.decoder import make

    decoder = make(setup)
    step = decoder.step

    def twice():
        return [
            replace(event, ids=tuple((token + 1) % 40 for token in event.ids)) if isinstance(event, Tokens) else event
            for event in step()
            for _ in range(2)
        ]

    decoder.step = twice
    return decoder
