"""Acceptance: which drafts were accepted, beside the closed form of their chance."""

from collections.abc import Sequence
from math import log, sqrt

from ..verdicts import Decision, Verdict
from . import Case


def reach(count: int, planned: int, alpha: float) -> float:
    """How far the mean of `count` outcomes may be from that of their chances, but with probability alpha.

    Σ (outcome - chance) is a martingale S whose steps have a range of one, so exp(λS - λ²n/8) has expectation at most 1
    whenever it is stopped (Hoeffding). λ is best for the planned number, and right for any.
    """
    price = log(2 / alpha)
    stake = sqrt(8 * price / planned)
    return (price / stake + stake * count / 8) / count


def decide(cases: Sequence[Case]) -> Decision:
    """The mean of what was accepted against the mean of its chances; `alpha` is shared by the cases.

    `slack` is what rounding may do to a chance. No bias up to it is held against anyone.
    """
    said, bias, wanted = list[str](), 0.0, 0.0
    for index, case in enumerate(cases):
        count, hits, chances = len(case["chance"]), sum(map(bool, case["accepted"])), sum(case["chance"])
        if not count or count != len(case["accepted"]):
            return Decision(Verdict.INCONCLUSIVE, f"{case['what']}: no draft was judged", case=index)
        share, slack = float(case["alpha"]) / len(cases), float(case["slack"])
        off, far = abs(hits - chances) / count, reach(count, int(case["planned"]), share)
        mean, closed = hits / count, chances / count
        said.append(f"{case['what']}: {mean:.3g} of {count} drafts accepted, the closed form says {closed:.3g}")
        if off > far + slack:
            because = f"chance explains {far:.3g} at an error rate of {share:.2g}, rounding {slack:.2g}"
            return Decision(Verdict.VIOLATED, f"{said[-1]}; {because}", case=index)
        bias, wanted = max(bias, off + far), max(wanted, float(case["wanted"]))
    detail = "; ".join(said)
    if bias > wanted:
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; the bias is only known to be at most {bias:.3g}")
    return Decision(Verdict.HOLDS, detail, delta=bias)
