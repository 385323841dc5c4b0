"""Leans: how much further tokens lean some way with speculation than without it, pair of outputs by pair of outputs.

The unit is the request: each prompt is answered by both arms, under seeds of their own. An envelope that bounds the
mean lean of the plain arm's tokens would say nothing about any single token or request of the other arm, so the
two answers are compared with each other. Half of the error rate goes to bets on the pairs, which may end the run early;
half to intervals of the mean difference, which every law of a request's lean leaves valid.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log

import numpy as np

from .. import statistics
from ..statistics import Bets
from ..statistics.pairs import Floats
from ..verdicts import Decision, Verdict
from . import Case

POWER = 0.9  # with which a lean that is called visible would have been seen
MOST = 10**8  # pairs; nobody is told to gather more


def differences(case: Case) -> list[float]:
    """The lean of each request's output with speculation minus that of the one without, both in [-1, 1]."""
    found = [float(on) - float(off) for on, off in zip(case["on"], case["off"], strict=True)]
    if len(case["allowed"]) != len(found) or not all(-2 <= d <= 2 for d in found):
        raise ValueError(f"{case['label']}: must hold pairs in [-1, 1], with what is allowed for each")
    return found


def evidence(cases: Sequence[Case]) -> Floats:
    """Log e-values [n] after each pair: the mean over all leans and both directions. Their level is `enough`."""
    both = [statistics.excess([s * d for d in differences(case)], case["allowed"]) for case in cases for s in (1, -1)]
    return np.asarray(np.logaddexp.reduce(both, axis=0) - log(len(both)))


def enough(alpha: float) -> float:
    """The log e-value at which gathering may stop: the law is violated."""
    return log(2 / alpha)


def states(cases: Sequence[Case]) -> list[Bets]:
    return [statistics.update(Bets(), [(d / 2,) for d in differences(case)]) for case in cases]


def ends(state: Bets, alpha: float, cases: int) -> tuple[float, float]:
    """Where the mean difference of one lean lies, all of `cases` being bounded together."""
    low, high = statistics.interval(state, alpha / 2 / cases)
    return 2 * low, 2 * high


def sighted(cases: Sequence[Case]) -> float:
    """A lean that so many pairs would have shown with a chance of `POWER`, whichever way it goes; at most 1."""
    wanted = enough(rate_of(cases)) + log(2 * len(cases))
    return max(statistics.seen(differences(case), case["allowed"], wanted, POWER) for case in cases)


def rate_of(cases: Sequence[Case]) -> float:
    return min((float(case["alpha"]) for case in cases), default=1.0)


def decide(cases: Sequence[Case]) -> Decision:
    """Violated once the evidence suffices, or at an answer that holds what no decoder may say (`stray`)."""
    for index, case in enumerate(cases):
        if "stray" in case:
            return Decision(Verdict.VIOLATED, f"{case['label']}: {case['stray']}", case=index)
    if not cases or not cases[0]["on"]:
        return Decision(Verdict.INCONCLUSIVE, "no pair of outputs was seen")
    alpha, found = rate_of(cases), states(cases)
    pairs, path = found[0].requests, evidence(cases)
    if path.max() >= enough(alpha):
        index = max(range(len(cases)), key=lambda i: evidence(cases[i : i + 1]).max())
        case, mean = cases[index], 2 * found[index].total / pairs
        told = f"with speculation {pairs} outputs {case['label']} by {mean:.3g} more than without, on the average"
        odds = f"rounding explains {max(case['allowed']):.2g}; evidence 10^{min(path.max() / log(10), 999):.1f}"
        return Decision(Verdict.VIOLATED, f"{told}; {odds}", case=index)
    bounds = [ends(state, alpha, len(cases)) for state in found]
    bias, wanted = max(abs(end) for pair in bounds for end in pair), max(float(case["wanted"]) for case in cases)
    seen = sighted(cases)
    visible = f"a lean of {seen:.3g} or more would" if seen < 1 else "no lean, however strong, would"
    detail = f"{pairs} pairs of outputs; {visible} have been seen with a chance of {POWER:g}"
    if bias <= wanted:
        return Decision(Verdict.HOLDS, detail, delta=bias)
    more = max(needed(state, alpha, len(cases), wanted) for state in found)
    settle = f"about {more:.2g} more requests would settle it" if more < inf else "more like these would not settle it"
    return Decision(Verdict.INCONCLUSIVE, f"{detail}; the mean lean is only known to be at most {bias:.3g}; {settle}")


def needed(state: Bets, alpha: float, cases: int, wanted: float) -> float:
    """How many more pairs shrink the interval into ±wanted, if their mean and spread stay as they are."""
    pairs = state.requests
    while max(abs(end) for end in ends(_grown(state, pairs), alpha, cases)) > wanted:
        pairs += -(-pairs // 20)
        if pairs > MOST:
            return inf
    return pairs - state.requests


def _grown(state: Bets, pairs: int) -> Bets:
    factor = pairs / state.requests
    return replace(state, requests=pairs, total=state.total * factor, spread=state.spread * factor)
