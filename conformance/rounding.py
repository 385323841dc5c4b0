"""What rounding to a dtype explains: measured on the reference itself, evaluated in that dtype and in float64.

Rounding moves two tokens that are nearly tied apart, or together, by the sum of many small errors; given the context
that sum is close to normal. So its mean square is measured over sequences (clusters: the tokens of one sequence share
their past), an upper confidence bound of it is taken, and the envelope is that spread times the normal quantile beyond
which not one of a run's decisions should fall. Both errors are paid from the run's budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import NormalDist

import numpy as np
import torch

from specqual.reference.sampling import Law

DECISIONS = 10**5  # that a run puts to one envelope, at most
NEAR = 1.0  # nats below the best: tokens farther away are no ties, whatever the dtype
OTHERS = (
    1.4  # times the spread of the reference in a dtype: what another engine in that dtype may have, twice the variance
)
ENOUGH = 30  # pairs that a spread can be compared on
EXACT = 1e-9  # nats by which float64 evaluations differ among themselves


@dataclass(frozen=True, slots=True)
class Envelope:
    """How far rounding to `dtype` moves two scores apart: at most `nats`. `spread` is the root mean square over `pairs`
    measured ones, `widest` what it may be of any evaluation in that dtype."""

    dtype: str
    nats: float
    spread: float = 0.0
    widest: float = inf
    pairs: int = 0

    @property
    def tips(self) -> float:
        """The spread (nats) at which any evaluation in that dtype may flip near ties; the envelope where no pair was
        there to measure one."""
        return self.widest if isfinite(self.widest) else self.nats

    def __str__(self) -> str:
        if not self.pairs:
            return f"{self.nats:.3g} nats ({self.dtype}: nothing to round)"
        return (
            f"{self.nats:.3g} nats ({self.dtype} moves two near ties by {self.spread:.3g} nats, "
            f"root mean square of {self.pairs} pairs)"
        )


def number(dtype: str) -> torch.dtype | None:
    """The dtype of this name if it rounds more than float64 does, else None."""
    found = getattr(torch, dtype, None)
    return found if isinstance(found, torch.dtype) and found.is_floating_point and found.itemsize < 8 else None


def summation(dtype: torch.dtype) -> float:
    """What other orders of summation may add: sums are as wide as float32, so narrower dtypes do not notice them."""
    return 16.0 if dtype.itemsize >= 4 else 1.0


def near_ties(exact: Law, rounded: Law, best: int | None = None) -> Law:
    """How far rounding moved each near tie away from the best of a row of scores [k]; the best itself is left out.

    `best` is the place to compare with, by default the highest exact score.
    """
    first = int(exact.argmax()) if best is None else best
    near = np.flatnonzero(np.abs(exact - exact[first]) <= NEAR)  # an impossible token is near none
    near = near[near != first]
    moved: Law = (rounded[near] - exact[near]) - (rounded[first] - exact[first])
    return moved


def bound(clusters: Sequence[Law], dtype: str, alpha: float, floor: float = 0.0) -> Envelope:
    """The envelope from displacements (nats), one array per cluster, at error rate alpha; at least `floor` nats.

    Half of alpha is the chance that the spread is larger than its bound (Student's t over the clusters' mean squares),
    half the chance that any of a run's decisions falls beyond the quantile.
    """
    rounding = number(dtype)
    filled = [cluster for cluster in clusters if len(cluster)]
    if rounding is None or len(filled) < 2:
        return Envelope(dtype, max(floor, EXACT))
    weights = np.array([len(cluster) for cluster in filled], dtype=np.float64)
    squares = np.array([float(np.square(cluster).mean()) for cluster in filled])
    mean = float((weights * squares).sum() / weights.sum())
    error = sqrt(float(np.square(weights * (squares - mean)).sum())) / float(weights.sum())
    largest = mean + student(alpha / 2, len(filled) - 1) * error
    largest = summation(rounding) * sqrt(largest)
    nats = -NormalDist().inv_cdf(alpha / 2 / DECISIONS) * largest
    return Envelope(dtype, max(nats, floor, EXACT), sqrt(mean), OTHERS * largest, int(weights.sum()))


def student(tail: float, freedom: int) -> float:
    """The upper quantile of Student's t, by its expansion about the normal one (good for 20 degrees and more)."""
    z = -NormalDist().inv_cdf(tail)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
