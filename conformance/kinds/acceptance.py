"""Acceptance: which drafts were accepted, slot by slot, beside the closed form of their chance.

Half of the error rate goes to single slots, half to their sum in which nothing cancels: the largest of the sums that
take each slot with one sign or the other.
"""

from collections.abc import Sequence
from math import fsum, log, sqrt
from statistics import NormalDist

from ..verdicts import Decision, Verdict
from . import Case

POWER = 0.9  # with which a bias that is called visible would have been seen


def reach(count: int, planned: int, price: float) -> float:
    """How far the mean of `count` outcomes may be from that of their chances, but with probability exp(-price).

    Σ (outcome - chance) is a martingale S whose steps have a range of one, so exp(λS - λ²n/8) has expectation at most 1
    whenever it is stopped (Hoeffding). λ is best for the planned number, and right for any.
    """
    stake = sqrt(8 * price / planned)
    return (price / stake + stake * count / 8) / count


def counts(case: Case) -> tuple[int, float]:
    """Drafts judged at a slot, and how many more of them were accepted than their chances say."""
    count = len(case["chance"])
    if count != len(case["accepted"]):
        raise ValueError(f"{case['what']}: a chance for each draft that was judged")
    return count, sum(map(bool, case["accepted"])) - fsum(case["chance"])


def rate_of(cases: Sequence[Case]) -> float:
    return min(float(case["alpha"]) for case in cases)


def alone(case: Case, cases: Sequence[Case]) -> float:
    """How far one slot's mean may be off by chance."""
    return reach(counts(case)[0], int(case["planned"]), log(2 * 2 * len(cases) / rate_of(cases)))


def together(cases: Sequence[Case]) -> float:
    """How far the slots' means may be off by chance on the average over all drafts, every one taken as positive."""
    planned = sum(int(case["planned"]) for case in cases if case["slot"] == 0)
    return reach(sum(counts(case)[0] for case in cases), planned, log(2 / rate_of(cases)) + len(cases) * log(2))


def sighted(cases: Sequence[Case]) -> tuple[float, float]:
    """The smallest biases that would have been seen with a chance of `POWER`: of the slot that was judged most, and on
    the average over all drafts; 1 where no bias would."""

    def surely(far: float, count: int) -> float:
        return min(1.0, far + slack + NormalDist().inv_cdf(POWER) / 2 / sqrt(count))

    slack = max(float(case["slack"]) for case in cases)
    judged = [case for case in cases if case["chance"]]
    if not judged:
        return 1.0, 1.0
    drafts = sum(counts(case)[0] for case in judged)
    return min(surely(alone(c, cases), counts(c)[0]) for c in judged), surely(together(cases), drafts)


def decide(cases: Sequence[Case]) -> Decision:
    """The mean of what was accepted at each slot against the mean of its chances; `alpha` is shared by the cases.

    `slack` is what rounding may do to a chance. No bias up to it is held against anyone. An answer that holds what no
    decoder may say (`stray`) is judged by that alone.
    """
    for index, case in enumerate(cases):
        if "stray" in case:
            return Decision(Verdict.VIOLATED, f"{case['what']}: {case['stray']}", case=index)
    found = [counts(case) for case in cases]
    drafts = sum(count for count, _ in found)
    if not drafts:
        return Decision(Verdict.INCONCLUSIVE, "no draft was judged")
    slack, wanted = (max(float(case[name]) for case in cases) for name in ("slack", "wanted"))
    for index, (case, (count, more)) in enumerate(zip(cases, found, strict=True)):
        if count and abs(more) / count > alone(case, cases) + slack:
            because = f"chance explains {alone(case, cases):.3g} of a bias at an error rate of {rate_of(cases):.2g}"
            return Decision(Verdict.VIOLATED, f"{_told(case)}; {because}, rounding {slack:.2g}", case=index)
    off, far = fsum(abs(more) for _, more in found) / drafts, together(cases)
    if off > far + slack:
        index = max(range(len(cases)), key=lambda i: abs(found[i][1]))
        because = f"all slots are off by {off:.3g} on the average, chance explains {far:.3g}, rounding {slack:.2g}"
        return Decision(Verdict.VIOLATED, f"{because}; {_told(cases[index])}", case=index)
    one, every = sighted(cases)
    unseen = sum(not count for count, _ in found)
    detail = (
        f"{drafts} drafts, off by {off:.3g} on the average, no slot making up for another; with a chance of {POWER:g} "
    )
    detail += f"{every:.3g} or more on that average would have been seen, {one:.3g} at the slot judged most"
    detail += f"; {unseen} of {len(cases)} slots were never judged" if unseen else ""
    if off + far > wanted:
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; the bias is only known to be at most {off + far:.3g}")
    return Decision(Verdict.HOLDS, detail, delta=off + far)


def _told(case: Case) -> str:
    count = len(case["chance"])
    hits, chances = sum(map(bool, case["accepted"])) / count, fsum(case["chance"]) / count
    return f"{case['what']}: {hits:.3g} of {count} drafts accepted, the closed form says {chances:.3g}"
