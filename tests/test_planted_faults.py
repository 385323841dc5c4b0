"""The suite has teeth: every planted fault is VIOLATED by the clause that owns the property, and controls are not.

A crash, an error or a time-out does not count as caught.
"""

import re
from dataclasses import dataclass

import pytest

from specqual import fixtures, reference
from specqual.contract import Setup
from tests import faults
from tests.qualification import Pair, results

DFLASH, DFLASH2 = Pair("nano/dense", "nano/dense-dflash"), Pair("nano/dense", "nano/dense-dflash2")
MARKOV, HYBRID = Pair("nano/dense", "nano/dense-markov"), Pair("nano/hybrid", "nano/hybrid-dflash")
LOOKUP, FLAT = Pair("nano/dense"), Pair("table/flat")
PASSED = {"EXACT", "HOLDS", "TIE-EXPLAINED"}
KINDS = {"01", "02", "03", "04", "05", "06", "08", "10", "11", "12", "20", "21", "22", "23"}


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault, the clause that owns the property it breaks, and what it is looked for on."""

    fault: str
    clause: str
    pair: Pair = DFLASH2

    def __str__(self) -> str:
        return f"{self.fault}-{self.clause}"


PLANTED = tuple(
    Planted(fault, clause, pair)
    for clause, pair, names in (
        ("GE-1", DFLASH2, "m01a m01b m01c m01d m01e"),
        ("GE-4", HYBRID, "m01c m01d"),
        ("LAW-2", DFLASH, "m02a m02e"),
        ("LAW-2", DFLASH2, "m02b m02c m03f m04g"),
        ("LAW-2", MARKOV, "m02d"),
        ("LAW-3", DFLASH2, "m04a m04b m04c m04d m04e m04f m05a m05b m05c"),
        ("LAW-4", DFLASH2, "m03a"),
        ("LAW-5", DFLASH2, "m05a"),
        ("RNG-1", DFLASH2, "m03a m03b m03c m03d m03e m03g"),
        ("RNG-3", DFLASH2, "m03d"),
        ("SMP-1", DFLASH2, "m06d"),
        ("SMP-2", DFLASH2, "m06a m06e"),
        ("SMP-3", DFLASH2, "m06a m06b m06c m06e m06f"),
        ("SMP-4", DFLASH2, "m08a m08b m08c m08d m08f m08h"),
        ("SMP-5", DFLASH2, "m08e m08g m08h"),
        ("SMP-6", DFLASH2, "m08a m08b m08c m08d m08f m08h"),
        ("SMP-7", DFLASH2, "m08a m08b m08f"),
        ("SMP-8", DFLASH2, "m06g"),
        ("FIN-1", DFLASH2, "m10a m10d m10e m10f m12d"),
        ("FIN-2", DFLASH2, "m05d m10a m10b m11d m12b"),
        ("FIN-3", DFLASH2, "m11a m11b m11c"),
        ("FIN-5", DFLASH2, "m10c"),
        ("FIN-6", DFLASH2, "m12a m12c"),
        ("DRF-1", DFLASH2, "m20a m20b m20c m20d m20g m21b m21c m21d m21e m21f m21h m21i m21j m21k m22b m22d m22f"),
        ("DRF-1", HYBRID, "m20d"),
        ("DRF-1", MARKOV, "m21j"),
        ("DRF-3", DFLASH2, "m20c m21a m22e"),
        ("CKP-2", DFLASH2, "m23a m23b m23c m23k"),
        ("CKP-2", MARKOV, "m23c"),
        ("CKP-3", DFLASH2, "m23d m23j"),
        ("CKP-4", DFLASH2, "m23h m23i"),
    )
    for fault in names.split()
)


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_the_owning_clause_is_violated(planted: Planted) -> None:
    line = results(f"tests.faults:{planted.fault}", planted.pair, [planted.clause])[planted.clause]
    assert line["verdict"] == "VIOLATED", line["detail"]


@pytest.mark.parametrize("pair", sorted({planted.pair for planted in PLANTED}, key=str), ids=lambda pair: pair.draft)
def test_the_sound_decoder_passes_the_same_clauses(pair: Pair) -> None:
    clauses = sorted({planted.clause for planted in PLANTED if planted.pair == pair})
    found = results("reference", pair, clauses)
    assert {clause: found[clause]["verdict"] for clause in clauses if found[clause]["verdict"] not in PASSED} == {}


def test_every_fault_is_planted_and_every_kind_has_one() -> None:
    written = {name for name in vars(faults) if re.fullmatch(r"m\d\d[a-z]", name)}
    assert {planted.fault for planted in PLANTED} == written
    assert {name[1:3] for name in written} == KINDS


def test_faults_claim_what_the_sound_decoder_claims() -> None:
    setup = Setup(target=fixtures.path(DFLASH2.target), draft=fixtures.path(str(DFLASH2.draft)))
    sound = reference.make(setup).claims
    for fault in {planted.fault for planted in PLANTED}:
        assert getattr(faults, fault)(setup).claims == sound, fault


def test_what_is_not_claimed_must_be_refused_by_its_name() -> None:
    found = {
        name: results(f"tests.faults:{name}", DFLASH2, ["SMP-8"])["SMP-8"]
        for name in ("narrow", "narrow_silent", "narrow_misnamed")
    }
    assert {name: line["verdict"] for name, line in found.items()} == {
        "narrow": "EXACT",
        "narrow_silent": "VIOLATED",
        "narrow_misnamed": "VIOLATED",
    }
    assert found["narrow_silent"]["detail"].startswith("min_p")


CONTROLS = {  # what they are tried on, and what may stay open there, for want of the hazard or of keys for the numbers
    "n1": (DFLASH2, set()),
    "n2": (DFLASH2, set()),
    "n3": (LOOKUP, {"LIVE-1", "GE-1", "LAW-2"}),  # hardly anything of it is ever accepted
    "n4": (DFLASH2, set()),
    "n7": (DFLASH2, {"LAW-2", "LAW-3", "RNG-1"}),  # the contract has no keys for a block's coins
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_decoder_that_is_right_in_an_unusual_way_is_not_flagged(control: str) -> None:
    pair, may_stay_open = CONTROLS[control]
    clauses = ["LIVE-1", "LIVE-3", "GE-1", "GE-4", "LAW-2", "LAW-3", "RNG-1", "RNG-3", "FIN-2"]
    found = results(f"tests.faults:{control}", pair, clauses)
    assert {name: line["detail"] for name, line in found.items() if line["verdict"] in ("VIOLATED", "ERROR")} == {}
    assert {name for name, line in found.items() if line["verdict"] not in PASSED} <= may_stay_open


def test_noise_keyed_by_position_keeps_the_strongest_seed_contract() -> None:
    found = results("tests.faults:n5", DFLASH2, ["RNG-2", "GE-3"])
    assert {line["verdict"] for line in found.values()} == {"EXACT"}


def test_a_near_tie_is_explained_as_one() -> None:
    found = results("tests.faults:n4", FLAT, ["GE-1"], 0, "--option", "ngram=2")
    assert found["GE-1"]["verdict"] == "TIE-EXPLAINED", found["GE-1"]["detail"]


def test_statistics_pass_block_verification_from_outside() -> None:
    found = results("tests.faults:n7_black_box", DFLASH2, ["LAW-6"])["LAW-6"]
    assert found["verdict"] == "HOLDS", found["detail"]


def test_statistics_see_a_law_that_is_too_flat_from_outside() -> None:
    found = results("tests.faults:m04e_black_box", DFLASH2, ["LAW-6"])["LAW-6"]
    assert found["verdict"] == "VIOLATED", found["detail"]
