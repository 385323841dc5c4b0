"""What a pattern of failing clauses looks like, among faults that were planted on purpose.

The table is data that the kill matrix produced (`python -m specqual.mutants.symptoms`); nothing here knows a mutant.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .verdicts import DECIDED, Verdict

TABLE = Path(__file__).parent / "symptoms.json"
FAILED = frozenset({Verdict.VIOLATED, Verdict.WAIVED})
NEAR = 0.5  # of the clauses that fail here or there; a pattern that shares fewer looks like nothing known


@dataclass(frozen=True, slots=True)
class Symptom:
    """A known fault: its kind, what goes wrong, which clauses decided about it, and which of them it violated."""

    id: str
    kind: str
    mechanism: str
    violated: frozenset[str]
    decided: frozenset[str]


@dataclass(frozen=True, slots=True)
class Index:
    """Known faults, and the names of their kinds."""

    kinds: Mapping[str, str]
    symptoms: tuple[Symptom, ...]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Index":
        found = (
            Symptom(one["id"], one["kind"], one["mechanism"], frozenset(one["violated"]), frozenset(one["decided"]))
            for one in content["mutants"]
        )
        return cls(dict(content["kinds"]), tuple(found))


@cache
def known() -> Index:
    """The index that ships with the suite."""
    return Index.of(json.loads(TABLE.read_text(encoding="utf-8")))


def likeness(one: Symptom, violated: Collection[str], decided: Collection[str]) -> float:
    """Shared failing clauses over all failing ones, among clauses that were decided on both sides."""
    common = one.decided & set(decided)
    theirs, ours = one.violated & common, common & set(violated)
    return len(theirs & ours) / len(theirs | ours) if theirs | ours else 0.0


def looks_like(results: Sequence[Mapping[str, Any]], index: Index | None = None) -> str | None:
    """One line about the kind of fault that fails as these verdicts do, or None where nothing known does."""
    violated = {line["clause"] for line in results if line["verdict"] in FAILED}
    if not violated:
        return None
    index = index or known()
    decided = {line["clause"] for line in results if line["verdict"] in DECIDED}
    scores = {one.id: likeness(one, violated, decided) for one in index.symptoms}
    best = max(scores.values(), default=0.0)
    if best < NEAR:
        return None
    alike = [one for one in index.symptoms if scores[one.id] == best]
    kind, count = Counter(one.kind for one in alike).most_common(1)[0]
    example = next(one for one in alike if one.kind == kind)
    pattern = "with this pattern" if best == 1.0 else f"with the nearest pattern, {best:.0%} the same"
    return (
        f"Looks like: {kind} {index.kinds[kind]} ({count} of {len(alike)} mutants {pattern}); "
        f"{example.id}, for instance: {example.mechanism}"
    )
