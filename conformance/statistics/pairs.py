"""Pairs of one request's figures under two conditions: whether the first gives more, by bets on their differences.

Where the condition changes nothing, the figures of a pair are two independent draws from one law, whatever that law is,
so their difference d is as likely as -d. Then 1 + tanh(λ d) has expectation one for every stake λ, and a product of
such bets is an e-process: tanh is the largest odd bet on d that cannot lose more than everything. What the law of a
single figure leans to, how its parts depend on one another, and how it differs from request to request, is all the
same to it.
"""

from collections.abc import Sequence
from math import log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STAKES = tuple(2.0**k for k in range(8))  # of figures in [-1, 1] whose differences are spread by 0.01 or more


def _steps(differences: Floats, allowed: Floats) -> Floats:
    """Logs of the single bets [stakes, n] that differences [n] exceed what is allowed for each."""
    x = np.asarray(STAKES)[:, None] * (differences - allowed)
    return np.asarray(log(2) - np.logaddexp(0.0, -2 * x))  # log(1 + tanh x)


def excess(differences: Sequence[float], allowed: Sequence[float]) -> Floats:
    """Log e-values [n] after each pair, the mean over all stakes, that differences [n] are larger than is allowed.

    The null: every difference is symmetric given all earlier ones, or lies below one that is, moved up by at most
    `allowed` [n]. For the other direction pass the negated differences.
    """
    steps = _steps(np.asarray(differences, float), np.asarray(allowed, float))
    return np.asarray(np.logaddexp.reduce(np.cumsum(steps, axis=1), axis=0) - log(len(STAKES)))


def seen(differences: Sequence[float], allowed: Sequence[float], log_e: float, power: float) -> float:
    """The smallest shift of pairs spread like these at which `excess` reaches `log_e` with this power; at most 1.

    Logs of bets are summed, so their sum is taken as normal; differences are centred and given both signs.
    """
    found = np.asarray(differences, float)
    if not len(found):
        return 1.0
    spread, wanted = found - found.mean(), log_e + log(len(STAKES))
    both, limits = np.concatenate([spread, -spread]), np.concatenate([allowed, allowed])
    z = NormalDist().inv_cdf(power)

    def reaches(shift: float) -> bool:
        steps = _steps(both + shift, limits)
        sure = len(found) * steps.mean(axis=1) - z * sqrt(len(found)) * steps.std(axis=1)
        return bool((sure >= wanted).any())

    low, high = 0.0, 1.0
    if not reaches(high):
        return 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
