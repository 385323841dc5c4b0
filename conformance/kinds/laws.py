"""Laws: each q against the reference drafter's on the same candidates, and the draft against its number."""

from collections.abc import Sequence

from ..verdicts import Decision, Verdict
from . import Case


def decide(cases: Sequence[Case]) -> Decision:
    """Total variation within the tolerance, candidates on the right side of the edge within the envelope, and u within
    the interval of the drafted token under the decoder's own q."""
    laws = ties = 0
    worst = tolerance = 0.0
    for index, case in enumerate(cases):
        tolerance = max(tolerance, float(case["tolerance"]))
        columns = zip(case["variation"], case["edge"], case["u"], case["low"], case["high"], strict=True)
        for place, (variation, edge, u, low, high) in enumerate(columns):
            wrong = None
            if variation > float(case["tolerance"]):
                wrong = f"q is off by {variation:.6g} (total variation), rounding explains {case['tolerance']:.3g}"
            elif edge > float(case["envelope"]):
                wrong = (
                    f"a candidate is on the wrong side of the edge by {edge:.6g} nats, rounding explains "
                    f"{case['envelope']:.3g}"
                )
            elif not low - case["sums"] <= u <= high + case["sums"] or low >= high:
                wrong = f"u = {u:.9g} is outside the draft's interval [{low:.9g}, {high:.9g}) of its own q"
            if wrong is not None:
                return Decision(Verdict.VIOLATED, f"{case['what']}, slot {place}: {wrong}", case=index, place=place)
            laws, ties, worst = laws + 1, ties + (edge > 0), max(worst, variation)
    detail = f"{laws} laws of {len(cases)} rounds, {ties} with a tie for the last candidate, within {tolerance:.3g}"
    return Decision(Verdict.HOLDS if worst else Verdict.EXACT, detail, delta=worst or None)
