"""One error budget: shares are planned, retries consume them, and a report shows what was spent."""

import json
from dataclasses import asdict
from math import fsum
from pathlib import Path

import pytest

from specqual import fixtures, reference
from specqual.conformance.audit import audit
from specqual.conformance.chapter import asked_of
from specqual.conformance.check import decided
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.lab import Lab, Run
from specqual.conformance.merge import chained
from specqual.conformance.report import Report, canonical, footer, load
from specqual.conformance.statistics.budget import ALPHA, PLAN, Ledger, Overspent, total
from specqual.contract import Setup


def test_the_shares_make_up_the_whole_and_belong_to_clauses_or_to_rounding():
    assert fsum(PLAN.values()) == pytest.approx(1.0)
    assert {name for name in PLAN if not name.startswith("rounding of")} <= CLAUSES.keys()


def test_however_often_everything_is_tried_again_no_more_than_the_budget_is_spent():
    ledger = Ledger()
    for purpose in PLAN:
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
    for result in decided(lab, ["RNG-3"]):
        report.add(json.loads(json.dumps(asdict(result) | asked_of(lab))))
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
