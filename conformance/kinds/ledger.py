"""Ledger: which numbers were read, and for what."""

from collections.abc import Sequence

from ..verdicts import Decision, Verdict
from . import Case


def decide(cases: Sequence[Case]) -> Decision:
    seen: dict[str, int] = {}
    for index, case in enumerate(cases):
        for key in case["read"]:
            if key in seen and not (case["repeatable"] and key.endswith("/bonus")):
                detail = (
                    f"{key} (seed/sample/round/position/purpose) was read twice: one number would decide two things"
                )
                return Decision(Verdict.VIOLATED, detail, case=index)
            seen[key] = index
    for index, case in enumerate(cases):
        missing = sorted(set(case["required"]) - set(case["read"]))
        if missing:
            detail = (
                f"{missing[0]} (seed/sample/round/position/purpose) was never read, so another number decided there"
            )
            return Decision(Verdict.VIOLATED, detail, case=index)
    return Decision(Verdict.EXACT, f"{len(seen)} numbers, each read for one decision, none missing")
