"""Values: what was expected against what was seen."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from ..verdicts import Decision, Verdict
from . import Case


def distance(expected: Any, actual: Any) -> float:
    """Largest difference of two JSON values with the same shape; infinite where anything but a float differs."""
    if isinstance(expected, float) and isinstance(actual, int | float) and not isinstance(actual, bool):
        return abs(expected - actual) if isfinite(actual) else float("inf")
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return max((distance(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)
    return 0.0 if type(expected) is type(actual) and expected == actual else float("inf")


def short(value: Any, limit: int = 160) -> str:
    """A value in at most `limit` characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def decide(cases: Sequence[Case]) -> Decision:
    off = [distance(case["expected"], case["actual"]) for case in cases]
    for index, (case, difference) in enumerate(zip(cases, off, strict=True)):
        if difference > float(case.get("tolerance", 0.0)):
            amount = f" (differs by {difference:.3g})" if isfinite(difference) else ""
            detail = f"{case['what']}: expected {short(case['expected'])}, got {short(case['actual'])}{amount}"
            return Decision(Verdict.VIOLATED, detail, case=index)
    worst = max(off, default=0.0)
    if worst > 0:
        return Decision(Verdict.HOLDS, f"{len(cases)} comparisons, largest difference {worst:.3g}", delta=worst)
    return Decision(Verdict.EXACT, f"{len(cases)} comparisons, all equal")
