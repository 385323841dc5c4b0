"""Counts: how often each cell of a law was seen."""

from collections.abc import Sequence

from .. import statistics
from ..verdicts import Decision, Verdict
from . import Case


def decide(cases: Sequence[Case]) -> Decision:
    share = [float(case["alpha"]) / len(cases) for case in cases]
    tests = [
        statistics.test(case["p"], case["counts"], alpha, float(case["slack"]))
        for case, alpha in zip(cases, share, strict=True)
    ]
    for index, (case, test) in enumerate(zip(cases, tests, strict=True)):
        if test.rejected is not None:
            return Decision(Verdict.VIOLATED, f"{case['label']}: {test.rejected}", case=index)
    bias, samples = max(test.bound for test in tests), sum(test.samples for test in tests)
    visible = max(test.visible for test in tests)
    detail = f"{samples} samples; a bias of {visible:.3g} (total variation) or more would have been seen"
    if bias > max(float(case["wanted"]) for case in cases):
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; the bias is only known to be at most {bias:.3g}")
    return Decision(Verdict.HOLDS, detail, delta=bias)
