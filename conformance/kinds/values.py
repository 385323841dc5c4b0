"""Values: what was expected against what was seen."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from ..verdicts import Decision, Verdict
from . import Case

NOISE = 1e-6  # nats; envelopes of evaluations as exact as the judge's are not worth a word


def distance(expected: Any, actual: Any) -> float:
    """Largest difference of two JSON values with the same shape; infinite where anything but a float differs."""
    if isinstance(expected, float) and isinstance(actual, int | float) and not isinstance(actual, bool):
        return abs(expected - actual) if isfinite(actual) else float("inf")
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return max((distance(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)
    return 0.0 if type(expected) is type(actual) and expected == actual else float("inf")


def excused(case: Case) -> bool:
    """Whether the difference in this case is a tie that it brings along."""
    tie = case.get("tie")
    return tie is not None and bool(tie["regret"] <= tie["envelope"])


def short(value: Any, limit: int = 160) -> str:
    """A value in at most `limit` characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def decide(cases: Sequence[Case]) -> Decision:
    """Equal up to the tolerance; or, where a case brings a tie along, two outputs of one greedy request that part at a
    token which rounding decides, and each of whose tokens is the best under its own prefix, up to rounding."""
    off, ties = list[float](), list[Case]()
    for index, case in enumerate(cases):
        difference = distance(case["expected"], case["actual"])
        if difference > 0 and excused(case):
            ties.append(case["tie"])
            continue
        off.append(difference)
        if difference > float(case.get("tolerance", 0.0)):
            amount = f" (differs by {difference:.3g})" if isfinite(difference) else ""
            detail = f"{case['what']}: expected {short(case['expected'])}, got {short(case['actual'])}{amount}"
            return Decision(Verdict.VIOLATED, detail, case=index)
    if ties:
        regret, envelope = (max(tie[name] for tie in ties) for name in ("regret", "envelope"))
        detail = (
            f"{len(ties)} of {len(cases)} comparisons part at a tie, worst by {regret:.3g} nats within {envelope:.3g}"
        )
        return Decision(Verdict.TIE_EXPLAINED, detail)
    worst = max(off, default=0.0)
    if worst > 0:
        allowed = max(float(case.get("tolerance", 0.0)) for case in cases)
        detail = f"{len(cases)} comparisons, largest difference {worst:.3g}, rounding would explain {allowed:.3g}"
        return Decision(Verdict.HOLDS, detail, delta=worst)
    return Decision(Verdict.EXACT, f"{len(cases)} comparisons, all equal")
