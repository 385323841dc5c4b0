"""Leans: how far sampled tokens lean one way or another, against what the engine does without speculation.

A third of the error rate goes to each of the envelope, an upper confidence bound of the bias without speculation; the
interval of the bias with it; and bets that the bias exceeds the envelope.
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
    return 0.0 if off is None else max(abs(end) for end in statistics.interval(off, alpha / 3 / cases))


def enough(alpha: float) -> float:
    """The log e-value, mean over all leans and both directions, that refutes the law."""
    return log(3 / alpha)


def decide(cases: Sequence[Case]) -> Decision:
    alpha = min((float(case["alpha"]) for case in cases), default=1.0)
    bets = [(index, state(case, side)) for index, case in enumerate(cases) for side in ("up", "down")]
    tokens = max((state(case, "on").requests for case in cases), default=0)
    envelopes, ends = list[float](), list[tuple[float, float]]()
    for case in cases:
        eta = reach(state(case, "off") if case["off"] is not None else None, alpha, len(cases))
        if any(abs(state(case, side).allowance - eta) > 1e-9 for side in ("up", "down")):
            raise ValueError(f"{case['label']}: its bets do not allow for the envelope")
        envelopes.append(eta + float(case["slack"]))
        ends.append(statistics.interval(state(case, "on"), alpha / 3 / len(cases)))
    together = statistics.mean([one.log_e for _, one in bets]) if bets else 0.0
    strongest = max(range(len(bets)), key=lambda i: bets[i][1].log_e, default=0)
    outside = [i for i, (eta, (low, high)) in enumerate(zip(envelopes, ends, strict=True)) if low > eta or high < -eta]
    if (bets and together >= enough(alpha)) or outside:
        index = outside[0] if outside else bets[strongest][0]
        low, high = ends[index]
        told = (
            f"{tokens} tokens {cases[index]['label']} by {low:.3g} to {high:.3g}, where at most {envelopes[index]:.3g}"
        )
        odds = f"evidence 10^{min(together / log(10), 999):.1f}"
        return Decision(Verdict.VIOLATED, f"{told} is explained; {odds}", case=index)
    bias = max((max(abs(low), abs(high)) for low, high in ends), default=1.0)
    wide = max((high - low for low, high in ends), default=2.0)
    visible = min(1.0, max(envelopes, default=0.0) + wide)
    wanted = max((float(case["wanted"]) for case in cases), default=0.0)
    detail = f"{tokens} tokens; a lean of {visible:.3g} or more would have been seen"
    if bias <= wanted:
        return Decision(Verdict.HOLDS, detail, delta=bias)
    more = max((_needed(tokens, *one, wanted) for one in ends), default=inf)
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
