"""Leans: how far sampled tokens lean one way or another, against what the engine does without speculation.

Half of the error rate goes to bets that the bias exceeds the envelope; a quarter to the envelope, an upper confidence
bound of the bias without speculation; a quarter to intervals of the bias with it.
"""

from collections.abc import Sequence
from math import ceil, inf, log, log10

from .. import statistics
from ..statistics import Bets
from ..verdicts import Decision, Verdict
from . import Case


def state(case: Case, name: str) -> Bets:
    found = statistics.from_dict(case[name])
    if not isinstance(found, Bets):
        raise ValueError(f"{name}: must be a state of Bets")
    return found


def reach(off: Bets | None, alpha: float, cases: int) -> float:
    """The envelope: the largest bias that the arm without speculation may have; 0 where there is none to measure."""
    return 0.0 if off is None else max(abs(end) for end in statistics.interval(off, alpha / 4 / cases))


def enough(alpha: float) -> float:
    """The log e-value, mean over all leans and both directions, that refutes the law."""
    return log(2 / alpha)


def envelopes(cases: Sequence[Case], alpha: float) -> list[float]:
    """How far each lean may go: the envelope of the arm without speculation, and what rounding explains."""
    found = []
    for case in cases:
        eta = reach(state(case, "off") if case["off"] is not None else None, alpha, len(cases))
        if any(abs(state(case, side).allowance - eta) > 1e-9 for side in ("up", "down")):
            raise ValueError(f"{case['label']}: its bets do not allow for the envelope")
        found.append(eta + float(case["slack"]))
    return found


def intervals(cases: Sequence[Case], alpha: float) -> list[tuple[float, float]]:
    """Where the mean bias of the tokens lies, lean by lean."""
    return [statistics.interval(state(case, "on"), alpha / 4 / len(cases)) for case in cases]


def sighted(cases: Sequence[Case]) -> float:
    """A lean that intervals of this width would have shown to exceed every envelope; at most 1."""
    alpha = rate_of(cases)
    wide = max(high - low for low, high in intervals(cases, alpha))
    return min(1.0, max(envelopes(cases, alpha)) + wide)


def rate_of(cases: Sequence[Case]) -> float:
    return min((float(case["alpha"]) for case in cases), default=1.0)


def decide(cases: Sequence[Case]) -> Decision:
    if not cases:
        return Decision(Verdict.INCONCLUSIVE, "no token was seen")
    alpha = rate_of(cases)
    allowed, ends = envelopes(cases, alpha), intervals(cases, alpha)
    bets = [(index, state(case, side)) for index, case in enumerate(cases) for side in ("up", "down")]
    tokens = max(state(case, "on").requests for case in cases)
    together = statistics.mean([one.log_e for _, one in bets])
    outside = [i for i, (most, (low, high)) in enumerate(zip(allowed, ends, strict=True)) if low > most or -high > most]
    if together >= enough(alpha) or outside:
        index = outside[0] if outside else max(bets, key=lambda bet: bet[1].log_e)[0]
        low, high = ends[index]
        told = f"{tokens} tokens {cases[index]['label']} by {low:.3g} to {high:.3g}"
        odds = f"at most {allowed[index]:.3g} is explained; evidence 10^{min(together / log(10), 999):.1f}"
        return Decision(Verdict.VIOLATED, f"{told}; {odds}", case=index)
    bias, wanted = max(abs(end) for pair in ends for end in pair), max(float(case["wanted"]) for case in cases)
    detail = f"{tokens} tokens; a lean of {sighted(cases):.3g} or more would have been seen"
    if bias <= wanted:
        return Decision(Verdict.HOLDS, detail, delta=bias)
    more = max(_needed(tokens, *one, wanted) for one in ends)
    needed = f"about {more:.0f} more tokens would settle it" if more < inf else "more tokens like these would not do"
    return Decision(Verdict.INCONCLUSIVE, f"{detail}; the lean is only known to be at most {bias:.3g}; {needed}")


def _needed(tokens: int, low: float, high: float, wanted: float) -> float:
    """How many more tokens shrink an interval into ±wanted, if it keeps its centre and shrinks with their root."""
    room = wanted - abs(low + high) / 2
    if room <= 0:
        return inf
    more = tokens * (((high - low) / 2 / room) ** 2 - 1)
    digits = 10 ** max(0, int(log10(max(more, 1))) - 1)
    return max(0.0, ceil(more / digits) * digits)
