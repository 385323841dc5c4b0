"""One error budget: shares are planned, retries consume them, and a report shows what was spent."""

import json
from dataclasses import asdict
from math import fsum
from pathlib import Path

import pytest

from specqual import fixtures, reference
from specqual.conformance.audit import audit
from specqual.conformance.chapter import asked_of, undecided
from specqual.conformance.check import decided
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.drafter import DraftTwin
from specqual.conformance.judge import Judge
from specqual.conformance.lab import Lab, Run, elsewhere
from specqual.conformance.merge import Unlike, chained, merge
from specqual.conformance.report import Report, canonical, footer, load
from specqual.conformance.statistics.budget import ALPHA, MEASUREMENTS, PLAN, Ledger, Overspent, overdrawn, rate, total
from specqual.conformance.test_lim import limited
from specqual.contract import Setup

from .reports import RUN, result, violated, written

PAIR = {"target": fixtures.path("nano/dense"), "draft": fixtures.path("nano/dense-dflash2")}


def test_the_shares_make_up_the_whole_and_belong_to_clauses_or_to_rounding():
    assert fsum(PLAN.values()) == pytest.approx(1.0)
    assert {name for name in PLAN if not name.startswith("rounding of")} <= CLAUSES.keys()


def test_however_often_everything_is_tried_again_no_more_than_the_budget_is_spent():
    ledger = Ledger()
    for purpose in PLAN.keys() - MEASUREMENTS:
        rates = [ledger.take(purpose) for _ in range(40)]
        assert rates == sorted(rates, reverse=True) and rates[1] == rates[0] / 2
    assert fsum(total([ledger.spent]).values()) <= ALPHA
    with pytest.raises(Overspent, match="^luck: "):
        ledger.take("luck")


def test_a_measurement_that_repeats_is_paid_once_and_workers_share_its_entry():
    ledger, other = Ledger(), Ledger()
    purpose = "rounding of the target"
    assert ledger.once(purpose) == ledger.once(purpose) == other.once(purpose)
    assert total([ledger.spent, other.spent]) == ledger.spent


def test_laboratories_for_other_checkpoints_take_from_the_ledger_of_their_run():
    lab = Lab(Run("reference", reference.make, Setup(**PAIR)))
    with limited(PAIR["target"], 64) as copy, limited(PAIR["draft"], 24) as short:
        for _ in range(2):  # copies that are equal: one event
            with elsewhere(lab, target=copy) as inner:
                inner.rounding()
            with elsewhere(lab, draft=short) as inner:
                inner.rounding()
                DraftTwin.of(inner).measured  # noqa: B018 - paid for when it is looked at
    lab.rounding(judge=Judge.of(fixtures.path("table/chain")))
    lab.renew()
    names = sorted(name.partition(": ")[0] for name in lab.budget.spent)
    others = ["rounding of another drafter", "rounding of another target", "rounding of another target"]
    assert names == [*others, "rounding of the target"]
    assert total([lab.budget.spent]) == lab.budget.spent


def test_no_more_checkpoints_may_be_measured_than_are_planned():
    ledger = Ledger()
    for place in range(MEASUREMENTS["rounding of another target"]):
        ledger.once("rounding of another target", f"{place:08x}")
    assert overdrawn(ledger.spent) == []
    ledger.once("rounding of another target", "f" * 8)
    assert overdrawn(ledger.spent)[0].startswith("rounding of another target: ")
    for purpose, subject in (
        ("rounding of another target", ""),
        ("rounding of the target", "f" * 8),
        ("GE-8", "f" * 8),
    ):
        with pytest.raises(Overspent, match="is no entry of a ledger"):
            ledger.once(purpose, subject)


def test_a_clause_pays_for_what_it_measures_elsewhere(tmp_path):
    run = Run("reference", reference.make, Setup(**PAIR))
    lab, report = Lab(run), Report(run, tmp_path, ["LIM-3"])
    for said in decided(lab, ["LIM-3"]):
        report.add(json.loads(json.dumps(asdict(said) | asked_of(lab))))
    report.close(0)
    assert list(load(tmp_path).verdicts[0]["spent"]) == ["rounding of the target"]
    assert audit(tmp_path).differences == ()


def test_attempts_of_several_processes_add_up_and_may_not_exceed_the_share():
    ledgers = [Ledger() for _ in range(3)]
    for ledger in ledgers:
        ledger.take("RNG-3")
    two, three = (total(ledger.spent for ledger in ledgers[:count]) for count in (2, 3))
    assert two == {"RNG-3 #1": ALPHA * PLAN["RNG-3"]}
    assert overdrawn(two) == []
    assert overdrawn(three) == ["RNG-3: 2.25e-07 of the error budget were spent, its share is 1.5e-07"]


def test_a_process_that_died_took_the_share_of_its_clause():
    assert undecided("RNG-3", "it died", "", 0.0).spent == {"RNG-3 #1": rate("RNG-3", 1)}
    assert undecided("GE-1", "it died", "", 0.0).spent == {}


def test_a_clause_that_was_run_again_has_one_verdict_and_both_count(tmp_path):
    spent = {"RNG-3 #1": rate("RNG-3", 1)}
    first = result("GE-1") | {"spent": {}}
    lost = asdict(undecided("RNG-3", "it died", RUN.replay("RNG-3"), 0.0))
    report = Report(RUN, tmp_path, ["GE-1", "RNG-3"])
    for line in (first, lost, lost):
        report.add(line)
    report.close(3)
    loaded = load(tmp_path)
    assert [line["clause"] for line in loaded.verdicts] == ["GE-1", "RNG-3"]
    assert loaded.footer["again"] == [{"clause": "RNG-3", "verdict": "ERROR", "spent": spent}]
    assert loaded.footer["budget"]["spent"] == {"RNG-3 #1": 2 * spent["RNG-3 #1"]}
    assert audit(tmp_path).differences == ()
    lines = [loaded.header, *loaded.verdicts, loaded.footer]
    hidden = changed([*lines[:-1], lines[-1] | {"again": []}], tmp_path)
    assert hidden == ("the budget: the footer states another one than the verdicts spent",)
    often = [*loaded.footer["again"] * 3]
    assert any(
        "RNG-3: 3e-07 of the error" in one for one in changed([*lines[:-1], footer(lines[1:-1], 3, often)], tmp_path)
    )


def test_a_violation_counts_whatever_the_verdict_before_it(tmp_path):
    report = Report(RUN, tmp_path, ["GE-1"])
    report.add(result())
    report.add(violated())
    report.close(1)
    assert audit(tmp_path).differences == ()
    assert load(tmp_path).footer["status"] == 1


def test_what_another_clause_took_is_no_payment(tmp_path):
    written(tmp_path, result() | {"spent": {"RNG-3 #1": rate("RNG-3", 1)}})
    assert audit(tmp_path).differences == ("GE-1: spent what is another clause's, RNG-3 #1",)


def test_an_attempt_whose_forerunner_is_not_in_the_report_is_named(tmp_path):
    first, fourth = (asdict(undecided("RNG-3", "it died", RUN.replay("RNG-3"), 0.0)) for _ in range(2))
    written(tmp_path, result() | {"spent": {}}, first, status=3)
    loaded = load(tmp_path)
    fourth["spent"] = {"RNG-3 #4": rate("RNG-3", 4)}
    lines = [loaded.header, loaded.verdicts[0], {"type": "verdict"} | fourth]
    assert changed([*lines, footer(lines[1:], 3)], tmp_path) == (
        "RNG-3 #4: was paid for, and attempt 3 is not in the report",
    )


def test_shards_that_decided_one_clause_both_paid_for_it(tmp_path):
    lost = asdict(undecided("RNG-3", "it died", RUN.replay("RNG-3"), 0.0)) | {"claims": None, "offers": None}
    folders = [written(tmp_path / name, lost, status=3) for name in ("a", "b", "c")]
    lines = merge(folders[:2], tmp_path / "two")
    assert lines[-1]["budget"]["spent"] == {"RNG-3 #1": ALPHA * PLAN["RNG-3"]}
    assert audit(tmp_path / "two").differences == ()
    with pytest.raises(Unlike, match="^RNG-3: 2.25e-07 of the error budget were spent"):
        merge(folders, tmp_path / "three")


@pytest.mark.parametrize(
    "spent", [{"LAW-6 #1": ALPHA}, {"LAW-6": 1e-9}, {"LAW-6 #0": 1e-9}, {"luck #1": 1e-9}], ids=str
)
def test_an_entry_that_is_not_the_plans_is_named(spent):
    with pytest.raises(Overspent, match="^" + next(iter(spent)).removesuffix(" #1")):
        total([spent])


def changed(lines: list[dict], folder: Path) -> tuple[str, ...]:
    """What `verify` says about a report with these lines, under a chain that is whole."""
    (folder / "report.jsonl").write_text("".join(canonical(line) + "\n" for line in chained(lines)))
    return audit(folder).differences


def test_verify_adds_up_what_a_report_spent(tmp_path):
    run = Run("reference", reference.make, Setup(target=fixtures.path("table/chain"), draft_length=2))
    lab, report = Lab(run), Report(run, tmp_path, ["RNG-3"])
    for said in decided(lab, ["RNG-3"]):
        report.add(json.loads(json.dumps(asdict(said) | asked_of(lab))))
    report.close(0)
    loaded = load(tmp_path)
    assert loaded.footer["budget"] == {"alpha": ALPHA, "spent": {"RNG-3 #1": ALPHA * PLAN["RNG-3"] / 2}}
    assert not audit(tmp_path).differences
    lines = [loaded.header, *loaded.verdicts, loaded.footer]
    unpaid = [lines[0], lines[1] | {"spent": {}}]
    assert "not paid for" in changed([*unpaid, footer(unpaid[1:], 0)], tmp_path)[0]
    assert changed([*lines[:2], lines[2] | {"budget": {"alpha": 1.0, "spent": {}}}], tmp_path)[0].startswith(
        "the budget"
    )
    greedy = [lines[0], lines[1] | {"spent": {"RNG-3 #1": 1.0}}, lines[2]]
    assert any(difference.startswith("RNG-3 #1: took 1.0") for difference in changed(greedy, tmp_path))
