"""Histories: what a decoder did under random treatment, against an undisturbed one."""

from collections.abc import Sequence

from ..verdicts import Decision, Verdict
from . import Case
from .values import distance, short


def decide(cases: Sequence[Case]) -> Decision:
    """VIOLATED by the first case with a difference beyond its tolerance, after the history that led to it."""
    for index, case in enumerate(cases):
        seen = case["difference"]
        if seen is not None and distance(seen["expected"], seen["actual"]) > float(seen["tolerance"]):
            unlike = f"{seen['what']}: expected {short(seen['expected'])}, got {short(seen['actual'])}"
            return Decision(Verdict.VIOLATED, f"{unlike}, after {case['history']}", case=index)
    rules, comparisons, ties = (
        sum(int(case.get(name, 0)) for case in cases) for name in ("rules", "comparisons", "ties")
    )
    fewest = min((int(case["rules"]) for case in cases), default=0)
    largest = max((float(case["largest"]) for case in cases), default=0.0)
    detail = f"{len(cases)} histories of {fewest} rules or more, {rules} in all, {comparisons} comparisons"
    if ties:
        detail = f"{detail}, {ties} outputs part at a tie, largest difference of a state {largest:.3g}"
        return Decision(Verdict.TIE_EXPLAINED, detail)
    if largest > 0:
        return Decision(Verdict.HOLDS, f"{detail}, largest difference {largest:.3g}", delta=largest)
    return Decision(Verdict.EXACT, f"{detail}, all equal")
