"""The verdict of a whole run says what was put to the test, how closely, and what was not."""

from math import log

from specqual import fixtures
from specqual.conformance.statistics import log_e
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.soak.about import About
from specqual.soak.hazards import SKIP, UNSEEN
from specqual.soak.journal import Journal
from specqual.soak.night import CONTEXTS, LAWS, judged
from specqual.soak.records import Epoch, Increment, Served
from specqual.soak.scenarios import SCENARIOS


def about(*scenarios: str) -> About:
    return About("optimised", Setup(target=fixtures.path("nano/dense")), 0, scenarios)


def test_what_is_skipped_is_told_with_its_reason_and_only_where_no_process_had_a_decoder(tmp_path):
    journal = Journal.open(tmp_path / "one")
    segment, served = journal.begin(about("gaps", "laws").json()), Served(0, 0.0, 1.0, 0.0)
    for name, number in (("gaps", 0), ("laws", 0)):
        journal.add(segment, Epoch(name, number, "SKIPPED", "", {f"{SKIP}foo: is no option": 1}), served)
    assert "skipped: gaps, laws (foo: is no option)" in judged(journal).decisions["hazards"].detail
    journal.add(segment, Epoch("gaps", 1, "EXACT", ""), served)
    told = judged(journal).decisions["hazards"].detail
    assert "skipped: laws (foo: is no option)" in told and "idle ticks (gaps)" in told


def test_a_law_holds_up_to_the_bias_that_would_have_shown_and_is_open_where_none_would(tmp_path):
    journal = Journal.open(tmp_path / "one")
    segment, found = journal.begin(about("laws").json()), []
    for number, size in enumerate((5, 1_000, 100_000)):
        one = Increment("law table", 0.0, 2 * size, {"0": (size, size)}, {"0": (0.5, 0.5)})
        journal.add(segment, Epoch("laws", number, "EXACT", "", {}, (one,)), Served(0, 0.0, 1.0, 0.0))
        found.append(judged(journal).decisions["laws"])
    few, more, many = found
    assert few.verdict is Verdict.INCONCLUSIVE and few.delta is None
    assert more.verdict is many.verdict is Verdict.HOLDS
    assert 0.1 > more.delta > 5 * many.delta > 0
    bias = many.delta + 0.005  # is seen in as many tokens as that
    leaning = tuple(round(100_000 * (1 + sign * 2 * bias)) for sign in (1, -1))
    assert log_e((0.5, 0.5), leaning) > log(CONTEXTS / LAWS)


def test_a_law_that_leans_for_a_while_is_violated_however_sound_the_rest_of_the_night_is(tmp_path):
    journal = Journal.open(tmp_path / "one")
    segment = journal.begin({"scenarios": ["laws"]})
    for number, row in enumerate([(300, 200)] * 10 + [(250, 250)] * 400):
        one = Increment("law table", 0.0, sum(row), {"0": row}, {"0": (0.5, 0.5)})
        journal.add(segment, Epoch("laws", number, Verdict.EXACT, "", {}, (one,)), Served(0, number, 0.5, 0.0))
    night = judged(journal)
    assert night.log_e < 14 < night.peak
    assert night.decisions["laws"].verdict is Verdict.VIOLATED and "at its peak" in night.decisions["laws"].detail


def test_hazards_that_are_waived_are_named_while_others_are_still_to_come(tmp_path):
    journal = Journal.open(tmp_path / "one")
    told = {f"{UNSEEN}preemptions": 3, "waited for room": 1}
    journal.add(journal.begin(about("pressure").json()), Epoch("pressure", 0, "EXACT", "", told), Served(0, 0.0, 1, 0))
    hazards = judged(journal).decisions["hazards"]
    assert hazards.verdict is Verdict.INCONCLUSIVE
    missing, _, waived = hazards.detail.partition("; not to be had of this decoder: ")
    assert waived == "preemptions" and "preemptions" not in missing and "cancellations (pressure)" in missing


def test_an_oracle_that_never_looks_leaves_a_run_open(tmp_path):
    journal = Journal.open(tmp_path / "one")
    segment = journal.begin(about("mixed").json())
    counts = {hazard: 1 for hazard in SCENARIOS["mixed"].hazards}
    looks = ("tokens judged", "states replayed", "requests served again, alone", "seeds replayed")
    journal.add(segment, Epoch("mixed", 0, Verdict.EXACT, "", counts), Served(0, 0.0, 1.0, 0.5))
    assert judged(journal).decisions["hazards"].verdict is Verdict.EXACT
    for place, look in enumerate((*looks, "times all was given back")):
        other = Journal.open(tmp_path / f"{place}")
        blind = {hazard: n for hazard, n in counts.items() if hazard != look}
        other.add(other.begin(about("mixed").json()), Epoch("mixed", 0, Verdict.EXACT, "", blind), Served(0, 0.0, 1, 0))
        decision = judged(other).decisions["hazards"]
        assert decision.verdict is Verdict.INCONCLUSIVE and look in decision.detail
