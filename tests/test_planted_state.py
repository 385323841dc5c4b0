"""The histories have teeth: every fault planted in the optimised decoder is VIOLATED by the clause that owns the
property, with a history that was shrunk, and controls are not.

A crash, an error or a time-out does not count as caught.
"""

import re
from dataclasses import dataclass
from importlib import import_module

import pytest

from specqual import fixtures
from specqual.contract import Setup
from specqual.decoder import make
from tests.qualification import Pair, results

DENSE, WINDOW, HYBRID = (Pair(f"nano/{name}", f"nano/{name}-dflash2") for name in ("dense", "window", "hybrid"))
PASSED = {"EXACT", "HOLDS", "TIE-EXPLAINED"}
KINDS = {"13", "14", "16", "17", "18", "19", "22", "24", "26"}
MODULES = ("state", "context", "pool", "recurrent", "schedule")
LONGEST = 20  # steps of a history that was shrunk


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
        ("state", "REC-1", HYBRID, "m14a"),
        ("context", "RWD-1", WINDOW, "m22a m22b"),
        ("context", "RES-3", WINDOW, "m22c"),
        ("context", "DRF-1", WINDOW, "m22d"),
        ("pool", "RWD-1", WINDOW, "m17d"),
        ("pool", "RES-1", DENSE, "m17a m17b m17c m17f m17g"),
        ("pool", "ISO-2", DENSE, "m17e"),
        ("pool", "RES-2", DENSE, "m18a m18b m18e"),
        ("pool", "RES-2", HYBRID, "m18f"),
        ("recurrent", "REC-1", HYBRID, "m19a m19b m19c m19h"),
        ("recurrent", "REC-2", HYBRID, "m19d"),
        ("recurrent", "RES-2", HYBRID, "m19e m19f m19g"),
        ("schedule", "ISO-2", DENSE, "m24a m24b m24c m24f m24g"),
        ("schedule", "ISO-1", HYBRID, "m24e"),
        ("schedule", "ISO-2", HYBRID, "m24d"),
        ("schedule", "RWD-2", DENSE, "m26d"),
        ("schedule", "SCH-1", DENSE, "m26b m26c"),
        ("schedule", "SCH-2", DENSE, "m26a m26f"),
        ("schedule", "SCH-2", HYBRID, "m26e"),
    )
    for fault in names.split()
)


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_the_owning_clause_is_violated_by_a_short_history(planted: Planted) -> None:
    line = results(planted.fault, planted.pair, [planted.clause])[planted.clause]
    assert line["verdict"] == "VIOLATED", line["detail"]
    history = line["evidence"]["cases"][0].get("history", "")
    assert len(history.split(" · ")) <= LONGEST, history


LEGAL = {  # decoders that must pass, and on what; a hybrid's only state is that of the last chunk, which n6 drops
    "specqual.decoder:make": (DENSE, WINDOW, HYBRID),
    "tests.faults.legal:n6": (DENSE,),
    "tests.faults.legal:n8": (WINDOW, HYBRID),
}


@pytest.mark.parametrize(
    ("decoder", "pair"), [(name, pair) for name, pairs in LEGAL.items() for pair in pairs], ids=str
)
def test_the_sound_decoder_and_what_only_looks_odd_pass_the_same_clauses(decoder: str, pair: Pair) -> None:
    clauses = sorted({planted.clause for planted in PLANTED if planted.pair == pair})
    found = results(decoder, pair, clauses)
    assert {name: line["detail"] for name, line in found.items() if line["verdict"] not in PASSED} == {}


def test_every_fault_is_planted_and_every_kind_has_one() -> None:
    written = {
        f"{module.__name__}:{name}"
        for module in (import_module(f"tests.faults.{name}") for name in MODULES)
        for name, value in vars(module).items()
        if re.fullmatch(r"m\d\d[a-z]", name) and value.__module__ == module.__name__
    }
    assert {planted.fault for planted in PLANTED} == written
    assert {re.sub(r".*:m(\d\d).", r"\1", fault) for fault in written} == KINDS


def test_faults_claim_what_the_sound_decoder_claims() -> None:
    setup = Setup(target=fixtures.path(HYBRID.target), draft=fixtures.path(str(HYBRID.draft)))
    sound = make(setup).claims
    for planted in PLANTED:
        module, _, name = planted.fault.partition(":")
        assert getattr(import_module(module), name)(setup).claims == sound, planted.fault
