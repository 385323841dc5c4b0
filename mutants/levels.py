"""How much of a decoder is to be seen: L1 the base protocol, L2 scores and counters beside it, L3 everything."""

from enum import StrEnum

from specqual.conformance.clauses import CLAUSES
from specqual.conformance.veil import BlackBox
from specqual.contract import Decoder, Make, Setup


class Level(StrEnum):
    """What of a decoder a run may look at."""

    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


SEEN = {Level.L1: {}, Level.L2: {"Scoring": "score", "Counted": "counters"}}
"""The optional protocols of a level, and the one method that each of them has."""


def seen_at(level: Level, make: Make) -> Make:
    """The same decoder with no more to be seen than this level has."""
    if level is Level.L3:
        return make

    def veiled(setup: Setup) -> Decoder:
        inner = make(setup)
        box = BlackBox(inner)
        for method in SEEN[level].values():
            if hasattr(inner, method):
                setattr(box, method, getattr(inner, method))
        return box

    return veiled


def clauses_at(level: Level, listed: frozenset[str]) -> tuple[str, ...]:
    """The clauses of a list that need no more than this level has, in the order of the specification."""
    return tuple(
        clause.id
        for clause in CLAUSES.values()
        if clause.id in listed and (level is Level.L3 or set(clause.needs) <= SEEN[level].keys())
    )
