"""The histories have teeth: every fault planted in the optimised decoder is VIOLATED by the clause that owns the
property, with a history that was shrunk, and controls are not.

A crash, an error or a time-out does not count as caught.
"""

from dataclasses import dataclass
from importlib import import_module

import pytest

from specqual import fixtures
from specqual.contract import Setup
from specqual.decoder import make
from tests.qualification import Pair, results

DENSE, WINDOW, HYBRID = (Pair(f"nano/{name}", f"nano/{name}-dflash2") for name in ("dense", "window", "hybrid"))
PASSED = {"EXACT", "HOLDS", "TIE-EXPLAINED"}
LONGEST = 12  # steps of a history that was shrunk


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault, the clause that owns the property it breaks, and what it is looked for on."""

    fault: str
    clause: str
    pair: Pair

    def __str__(self) -> str:
        return f"{self.fault.partition(':')[2]}-{self.clause}"


PLANTED = tuple(
    Planted(f"tests.faults.{module}:{fault}", clause, pair)
    for module, clause, pair, names in (
        ("state", "RWD-1", DENSE, "m13a m13b m13c m13d m13e m13f m13g m14b m14c"),
        ("state", "RWD-1", WINDOW, "m16a m16b m16c m16d"),
        ("context", "RWD-1", WINDOW, "m22a m22b"),
        ("context", "DRF-1", WINDOW, "m22d"),
        ("pool", "RWD-1", WINDOW, "m17d"),
    )
    for fault in names.split()
)


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_the_owning_clause_is_violated_by_a_short_history(planted: Planted) -> None:
    line = results(planted.fault, planted.pair, [planted.clause])[planted.clause]
    assert line["verdict"] == "VIOLATED", line["detail"]
    history = line["evidence"]["cases"][0]["history"]
    assert len(history.split(" · ")) <= LONGEST, history


@pytest.mark.parametrize("pair", sorted({planted.pair for planted in PLANTED}, key=str), ids=lambda pair: pair.draft)
@pytest.mark.parametrize("decoder", ["specqual.decoder:make", "tests.faults.legal:n6", "tests.faults.legal:n8"])
def test_the_sound_decoder_and_the_controls_pass_the_same_clauses(decoder: str, pair: Pair) -> None:
    clauses = sorted({planted.clause for planted in PLANTED})
    found = results(decoder, pair, clauses)
    wrong = {name: line["detail"] for name, line in found.items() if line["verdict"] not in PASSED | {"SKIPPED"}}
    assert wrong == {}


def test_faults_claim_what_the_sound_decoder_claims() -> None:
    setup = Setup(target=fixtures.path(HYBRID.target), draft=fixtures.path(str(HYBRID.draft)))
    sound = make(setup).claims
    for planted in PLANTED:
        module, _, name = planted.fault.partition(":")
        assert getattr(import_module(module), name)(setup).claims == sound, planted.fault
