"""What a run will cost is told before it starts, from recorded costs and a short probe."""

import pytest

from specqual import fixtures
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.estimate import PLAYERS, Pace, costs, estimate, growth, pace, recorded, table
from specqual.conformance.lab import EFFORTS, Lab, Run
from specqual.conformance.resolve import resolve
from specqual.conformance.verdicts import Profile
from specqual.contract import Setup

from .test_plugin import folder, run, toy  # noqa: F401 - fixtures

PAIR = {"target": fixtures.path("nano/hybrid"), "draft": fixtures.path("nano/hybrid-dflash2")}


def lab_of(profile: Profile = Profile.QUICK) -> Lab:
    return Lab(Run("optimised", resolve("optimised"), Setup(**PAIR), profile))


@pytest.fixture(scope="module")
def lab():
    found = lab_of()
    yield found
    found.renew()


def test_a_clause_whose_costs_were_never_recorded_is_told_as_such(lab, monkeypatch):
    kept = {name: cost for name, cost in costs()["profiles"]["quick"]["clauses"].items() if name != "GE-1"}
    quick = costs()["profiles"]["quick"] | {"clauses": kept}
    monkeypatch.setattr("specqual.conformance.estimate.costs", lambda: {"profiles": {"quick": quick}})
    lines = table(estimate(lab, ["GE-1", "GE-2"]), Profile.QUICK)
    assert lines[1].split()[:3] == ["GE-1", "?", "?"] and "without 1 whose costs are not known" in lines[-1]


def test_the_rows_are_the_clauses_that_the_decoder_offers(lab):
    rows = {row.clause: row for row in estimate(lab, CLAUSES)}
    assert rows.keys() == CLAUSES.keys()  # this one offers everything
    assert rows["GE-1"].tokens > 0 and rows["GE-1"].seconds > 0
    assert "rounding to float32" in rows["GE-1"].visible and rows["RWD-1"].visible == "any difference"
    assert "rounding to float32" in rows["NUM-2"].visible and rows["SMP-2"].visible == "any difference"
    assert rows["LAW-6"].seconds == 0 and "decided exactly by others" in rows["LAW-6"].visible
    assert "together" in table(list(rows.values()), Profile.QUICK)[-1]
    told = table(list(rows.values()), Profile.CERTIFY)[-1]
    assert told.startswith(f"certify was not recorded: derived from what {recorded(Profile.CERTIFY)} took")


def test_where_no_bits_are_promised_a_state_may_be_off_by_rounding():
    exact, loose = (
        Lab(Run("optimised", resolve("optimised"), Setup(**PAIR, options=o))) for o in ({}, {"invariant": "0"})
    )
    seen = [estimate(lab, ["RWD-1"])[0].visible for lab in (exact, loose)]
    assert seen == ["any difference", "whatever rounding to float32 does not explain"]
    for one in (exact, loose):
        one.renew()


def test_a_slower_decoder_takes_longer(lab, monkeypatch):
    def total(decoder: float) -> float:
        monkeypatch.setattr("specqual.conformance.estimate.pace", lambda lab: Pace(decoder, 1e-4))
        return sum(row.seconds for row in estimate(lab, ["GE-1", "SMP-2"]))

    assert 5 * total(0.01) < total(0.1) < 10 * total(0.01)


def test_shared_histories_are_paid_once_whichever_is_asked_first(lab, monkeypatch):
    monkeypatch.setattr("specqual.conformance.estimate.pace", lambda lab: Pace(0.01, 1e-4))
    (alone,) = estimate(lab, ["SCH-1"])
    together = {row.clause: row.seconds for row in estimate(lab, PLAYERS)}
    assert alone.seconds == together["RWD-1"] > 10 * together["SCH-1"]


def test_a_profile_that_was_not_recorded_grows_with_its_sizes():
    near = recorded(Profile.CERTIFY)
    assert near in costs()["profiles"] and recorded(Profile.QUICK) is Profile.QUICK
    histories, tokens = (
        getattr(EFFORTS[Profile.CERTIFY], size) / getattr(EFFORTS[near], size) for size in ("histories", "tokens")
    )
    assert growth("RWD-1", near, Profile.CERTIFY) == histories > 1
    assert growth("SMP-1", near, Profile.CERTIFY) == tokens
    assert growth("GE-1", Profile.QUICK, Profile.QUICK) == 1


def test_the_probe_measures_both_paces(lab):
    found = pace(lab)
    assert found.judge > 0 and 0 < found.decoder < 5


def test_the_option_prints_and_runs_nothing(toy):  # noqa: F811
    found = toy("none", "--clause", "GE", "--clause", "ERR-1", "--estimate")
    assert found.returncode == 0, found.stdout
    assert "what this run would be" in found.stdout and "together" in found.stdout
    assert "GE-1 " in found.stdout and "GE-4 " not in found.stdout  # needs drafts from a script
    assert "passed" not in found.stdout


def test_a_decoder_that_breaks_has_no_estimate(toy):  # noqa: F811
    found = toy("crash", "--clause", "GE-1", "--estimate")
    assert found.returncode == 3, found.stdout
    assert "no estimate: step raised ZeroDivisionError" in found.stdout
