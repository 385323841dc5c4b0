"""Gauges are read by process and by the time that a run was on, and leaks are judged from them."""

import re
from math import log, log10
from time import process_time

import pytest

from specqual.conformance.verdicts import Verdict
from specqual.soak.charts import GAUGES, MOST_POINTS, acceptance, charts, evidence, in_shares, regrets, thinned
from specqual.soak.gauges import AT_REST
from specqual.soak.glance import clock, glance, words
from specqual.soak.journal import Journal
from specqual.soak.night import judged
from specqual.soak.records import Epoch, Increment, Served
from specqual.soak.series import Life, Segments, a_deck, lives, memory, segments

from .soak_journals import START, written


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return Journal.read(written(tmp_path_factory.mktemp("soak")))


def test_a_worker_that_was_started_again_has_another_life(journal):
    found = lives(journal)
    assert [life.worker for life in found] == [0, 1, 0, 1]
    assert all(life.moments[0][1]["requests"] == 0 for life in found)


def test_a_worker_that_died_within_a_segment_has_another_life_as_well(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    journal.begin({"seed": 1})
    for moment, (process, requests) in enumerate(((7, 0), (7, 50), (7, 90), (8, 100), (8, 140))):
        journal.gauge(0, {"process": process, "requests": requests}, START + moment)
    assert [len(life.moments) for life in lives(journal)] == [3, 2]


def test_processes_are_told_apart_and_leaks_seen_though_the_clock_is_set_back(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    journal.begin({"seed": 1})
    for process in range(2):
        for moment in range(300):
            read = {"process": process, "requests": 100.0 * moment, AT_REST: 300 + 0.1 * moment}
            journal.gauge(0, read, START + 10 * moment - 1_005 * process)
    assert [len(life.moments) for life in lives(journal)] == [300, 300]
    assert memory(lives(journal)).verdict is Verdict.VIOLATED


def test_a_segment_in_which_the_clock_was_set_back_takes_no_time_from_the_others(tmp_path):
    file = written(tmp_path)
    journal = Journal.open(file)
    journal.connection.execute("UPDATE segments SET ended = started - 50 WHERE segment = 2")
    assert segments(journal).seconds == 600


def test_no_time_passes_between_two_segments(journal):
    on = segments(journal)
    assert on.seconds == pytest.approx(1202, abs=1)
    half = on.spans[0][1]
    assert on(half) == on(half + 2_000) == on(on.spans[1][0]) == half - START
    assert on(START - 5) == 0 and on(START + 7) == 7


def test_memory_is_judged_from_the_journal(journal, tmp_path):
    assert memory(lives(journal)).verdict is Verdict.HOLDS
    assert memory(lives(Journal.read(written(tmp_path, minutes=30, slope=9.0)))).verdict is Verdict.VIOLATED


def test_a_warm_up_takes_one_deck_of_epochs(tmp_path):
    """Two decks of nine epochs, of a hundred requests each."""
    journal = Journal.open(tmp_path / "soak.sqlite")
    segment = journal.begin({"seed": 1, "scenarios": ["mixed", "gaps", "chaos: the consumer is slow"]})
    assert a_deck(journal) == 0
    for number in range(18):
        journal.add(segment, Epoch("mixed", number, "EXACT", "", {"requests": 100}), Served(0, number, 1.0, 0.0))
    assert a_deck(journal) == 900
    for moment in range(300):  # caches fill for two thirds of the time
        journal.gauge(0, {"requests": 50.0 * moment, AT_REST: 300 + 0.2 * min(moment, 200)}, START + 10 * moment)
    assert memory(lives(journal), 10_000).verdict is Verdict.HOLDS
    assert memory(lives(journal), 0).verdict is not Verdict.HOLDS


def test_a_decoder_that_is_made_late_is_no_leak(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    journal.begin({"seed": 1})
    for moment in range(300):
        late = moment >= 150
        read = {"requests": 50.0 * moment, "decoders": 1 + late, AT_REST: 300 + 40 * late + 0.001 * moment}
        journal.gauge(0, read, START + 10 * moment)
    assert memory(lives(journal)).verdict is Verdict.HOLDS


def test_a_scenario_that_is_served_late_for_the_first_time_is_no_leak(tmp_path):
    """In each process: what it met in its life before is not what it has met."""
    journal = Journal.open(tmp_path / "soak.sqlite")
    segment = journal.begin({"seed": 1, "scenarios": ["mixed", "gaps"]})
    for process in range(2):
        for moment in range(300):
            late = moment >= 150
            read = {"process": process, "requests": 50.0 * moment, AT_REST: 300 + 40 * late + 0.001 * moment}
            journal.gauge(0, read, START + 10 * (moment + 300 * process))
            if moment % 10 == 9:
                name, number = ("gaps" if moment == 149 else "mixed"), moment + 300 * process
                served = Served(0, START + 10 * number + 1, 2.0, 0.0)
                journal.add(segment, Epoch(name, number, "EXACT", "", {"requests": 50}), served)
    assert [life.met for life in lives(journal)] == [START + 1_493, START + 4_493]
    assert memory(lives(journal)).verdict is Verdict.HOLDS


def test_a_glance_says_what_is_going_on(journal):
    seen = glance(journal)
    assert (seen.epochs, seen.violations, seen.workers) == (40, 0, 2)
    told = words(seen)
    assert told["on for"] == "0:20:01" and told["requests"] == "4,800" and told["tokens/s"] == "1,200"
    assert told["accepted per round"] == "2.50" and told["memory"] == "900 MB" and told["oracles"] == "28% of the time"
    assert told["log10 E"] == "0.40" and "device memory" not in told


def test_a_journal_without_anything_is_no_mistake(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    assert words(glance(journal))["epochs"] == "0" and lives(journal) == []
    assert memory([]).verdict is Verdict.INCONCLUSIVE
    assert charts(journal, [], segments(journal), 10.0) == []


def test_hours_are_written_as_on_a_clock():
    assert [clock(seconds) for seconds in (0, 61, 3599.6, 36_000)] == ["0:00:00", "0:01:01", "1:00:00", "10:00:00"]


def test_every_chart_is_drawn_from_what_was_recorded(journal):
    found = [chart.id for chart in charts(journal, lives(journal), segments(journal), 14.5)]
    drawn = [id for id, _, gauge, *_ in GAUGES if gauge not in ("device memory", "graph captures")]
    assert found == ["acceptance-length", *drawn, "evidence-1", "regret"]


def test_acceptance_is_that_of_the_runs_own_checkpoints_where_it_has_any(journal, tmp_path):
    chart = acceptance(journal)
    assert ">2k<" in chart.svg and "Mean of 3,200 rounds with drafts." in chart.caption
    other = Journal.open(tmp_path / "soak.sqlite")
    segment = other.begin({"seed": 1})
    for number, (scenario, accepted) in enumerate((("mixed", 0), ("mixed own", 30), ("mixed own", 10))):
        bins = {"drafted by length": {"1": 10}, "accepted by length": {"1": accepted}}
        other.add(segment, Epoch(scenario, number, "EXACT", "", histograms=bins), Served(0, number, 1.0, 0.0))
    chart = acceptance(other)
    assert "Mean of 20 rounds with drafts of the run’s own checkpoints" in chart.caption
    first, second = re.findall(r'points="[\d.]+,([\d.]+)', chart.svg)
    assert float(first) < float(second)  # SVG counts downwards: the second half is worse


def test_a_thinned_line_keeps_its_peak_and_its_end():
    path = [(float(x), 5.0) for x in range(5_000)]
    path[1234] = (1234.0, 99.0)
    found = thinned(path)
    assert len(found) <= MOST_POINTS + 1 and (1234.0, 99.0) in found and found[-1] == path[-1]


def test_the_gauges_of_a_night_are_drawn_in_little_time():
    moments = tuple(
        (START + 10 * k, {"free pages nano": 900.0 - k % 70, "memory": 400.0 + k % 9}) for k in range(5_000)
    )
    began = process_time()
    found = in_shares([Life(0, moments)], "free pages", Segments(((START, START + 50_000),)))
    assert process_time() - began < 1 and max(y for _, y in found["nano"]) == 1


def test_the_growth_of_evidence_is_that_of_all_counts_beside_the_epochs_own(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    segment = journal.begin({"seed": 1})
    for number in range(200):  # a coin that is said to be fair, and is not
        one = Increment("coin", 0.1 * (-1) ** number, 50, {"": (29, 21)}, {"": (0.5, 0.5)})
        journal.add(segment, Epoch("laws", number, "EXACT", "", evidence=(one,)), Served(0, number, 1.0, 0.0))
    (chart,) = evidence(journal, 14.5)
    assert chart.legend == ("all epochs together", "product over epochs", "mean of epochs")
    grown = judged(journal).laws[0].grown / log(10)
    assert grown > 14.5 / log(10) and f"all epochs together: {grown:.2f} at last" in chart.svg
    assert "product over epochs: 0.00 at last" in chart.svg and "enough to reject" in chart.svg


def test_the_regret_histogram_is_in_order_and_says_how_many():
    chart = regrets({"more": 1, "1e-3": 10, "0": 1000, "1e-6": 100})
    assert chart.svg.index(">0<") < chart.svg.index(">1e-6<") < chart.svg.index(">1e-3<") < chart.svg.index(">more<")
    assert "1,111 tokens" in chart.caption and log10(1000) == 3
