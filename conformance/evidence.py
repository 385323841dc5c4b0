"""Evidence: what a clause has seen, as plain JSON, and the pure functions that turn it into a verdict.

A verdict is never stored without the evidence that it follows from: `specqual verify` calls the same `decide`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .kinds import (
    Case,
    acceptance,
    cells,
    changes,
    counts,
    drafts,
    draws,
    flips,
    greedy,
    histories,
    laws,
    leans,
    ledger,
    streams,
    values,
)
from .verdicts import Decision, Verdict


class MalformedEvidence(ValueError):
    """Evidence that no clause of this suite could have recorded."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A hazard that the clause is about: seen fewer than `needed` times, the clause is INCONCLUSIVE.

    `seen` is None where nothing that the decoder offers would show the hazard; then the verdict says so.
    """

    hazard: str
    seen: int | None
    needed: int = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Cases of one kind, with the hazards that must have occurred for them to mean anything.

    `notes` are shown and decide nothing; `seam` among them, what the decoder let itself be seen by, ends the detail.
    """

    kind: str
    cases: Sequence[Case] = ()
    guards: Sequence[Guard] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def _occurrences(cases: Sequence[Case]) -> Decision:
    return Decision(Verdict.EXACT, "every hazard occurred")


KINDS: dict[str, Callable[[Sequence[Case]], Decision]] = {
    "greedy": greedy.decide,
    "flips": flips.decide,
    "values": values.decide,
    "draws": draws.decide,
    "drafts": drafts.decide,
    "laws": laws.decide,
    "cells": cells.decide,
    "counts": counts.decide,
    "leans": leans.decide,
    "ledger": ledger.decide,
    "streams": streams.decide,
    "changes": changes.decide,
    "histories": histories.decide,
    "acceptance": acceptance.decide,
    "occurrences": _occurrences,
}


def decide(evidence: Mapping[str, Any]) -> Decision:
    """The verdict that follows from evidence in its JSON form; MalformedEvidence if it has none of the known forms."""
    decision = _decide(evidence)
    seam = evidence.get("notes", {}).get("seam")
    return replace(decision, detail=f"{decision.detail}; seen by {seam}") if seam else decision


def _decide(evidence: Mapping[str, Any]) -> Decision:
    try:
        decision = KINDS[evidence["kind"]](evidence["cases"])
        guards = [Guard(**guard) for guard in evidence["guards"]]
        unseen = [guard.hazard for guard in guards if guard.seen is None]
        short_of = [guard for guard in guards if guard.seen is not None and guard.seen < guard.needed]
        empty = not evidence["cases"] and evidence["kind"] != "occurrences"
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise MalformedEvidence(f"evidence: {type(error).__name__}: {error}") from None
    if decision.verdict is Verdict.VIOLATED:
        return decision
    if short_of:
        missing = ", ".join(f"{guard.hazard} ({guard.seen} of {guard.needed})" for guard in short_of)
        return Decision(Verdict.INCONCLUSIVE, f"never put to the test: {missing}; seen so far: {decision.detail}")
    if empty:
        return Decision(Verdict.INCONCLUSIVE, "no case was recorded")
    if guards and evidence["kind"] == "occurrences":
        return Decision(Verdict.EXACT, ", ".join(f"{guard.hazard} {guard.seen}×" for guard in guards))
    if unseen:
        return replace(decision, detail=f"{decision.detail}; could not be seen from outside: {', '.join(unseen)}")
    return decision
