"""Envelopes that one run measures once and goes by in several clauses: within a report they are the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .bracket import variation
from .rounding import EXACT

APART = 1.05  # times another: as far as two machines whose shards were merged may differ


def _probability(nats: float) -> float:
    """The envelope of the target as draws are judged by it."""
    return max(variation(nats, 1.0), EXACT)


Reading = tuple[str, Callable[[float], float]]  # the field of a case, and what is compared of it
GREEDY = "GE-1 GE-2 GE-3 GE-4 GE-5 GE-6 GE-8 SMP-1 SMP-4 SMP-5 SMP-7 LIM-5 LIM-6".split()
DRAWN = "LAW-2 LAW-3 SMP-3 SMP-6".split()
DRAFTER = "DRF-1 DRF-2 LIM-8".split()
MEASURED: tuple[Mapping[str, Reading], ...] = (
    dict.fromkeys(GREEDY, ("envelope", float)),
    dict.fromkeys(GREEDY, ("envelope", _probability)) | dict.fromkeys(DRAWN, ("slack", float)),
    dict.fromkeys(DRAFTER, ("envelope", float)),
)
"""What is the same in all of these clauses: the target's envelope, in nats and in probability; the drafter's."""


def unlike(verdicts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Clauses whose evidence excuses more than that of another one, though one measurement serves both."""
    cases, named = {line["clause"]: line["evidence"]["cases"] for line in verdicts}, set[str]()
    for measured in MEASURED:
        stated = dict[str, list[float]]()
        for name, (field, compared) in measured.items():
            values = [compared(float(case[field])) for case in cases.get(name, ()) if field in case]
            stated |= {name: values} if values else {}
        least = min(stated, key=lambda name: min(stated[name]), default="")
        for name, values in stated.items():
            narrow, wide = min(stated[least]), max(values)
            if wide > narrow * APART + EXACT and name not in named:
                named.add(name)
                yield f"{name}: its evidence allows {wide:.3g}, that of {least} {narrow:.3g}, by one measurement"
