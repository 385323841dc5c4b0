"""Memory that grows with the requests, which no single epoch shows.

What is free at rest, and how many objects there are behind the same traffic, is exact and an epoch's own business. The
memory of a process is noisy, and has a bound: `BOUND`, on the slope that Theil and Sen's estimator finds behind the
warm-up. Its interval is that of Kendall's rank statistic; that of several processes together is as for the seasons of
a year in the seasonal Kendall test. A slope forgives what comes late or in few steps, so the rise is looked at as well.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, median

import numpy as np

from specqual.conformance.verdicts import Decision, Verdict

BOUND = 1.0  # MB of growth that 10,000 requests may bring
PER = 10_000  # requests
WARM_SHARE = 0.2  # of a life, in which pools, caches and what is remembered fill up
WARM_REQUESTS = 2_000  # of them, at least
MOST_POINTS = 1_000  # of all lives together: all pairs within each of them are looked at
FEWEST_POINTS = 24  # behind the warm-up
FEWEST_REQUESTS = 2_000  # behind the warm-up
OUTLIVED = 2  # times as many requests, in which a level process shows that the steps of another come to an end
ALLOCATOR = 4.0  # MB; a process gains or loses as much by the way its allocator keeps free memory
CONFIDENCE = 0.999  # of the interval of a slope, both sides together

Points = Sequence[tuple[float, float]]
"""(requests served so far, megabytes) of one process, from its start on."""


def warm(places: Sequence[float], least: float) -> int:
    """The first of these rising request counts of one life that lies behind its warm-up, of so many requests at least
    from its start on; their number if none does. They may begin later, behind what took memory once."""
    if not places:
        return 0
    edge = max(least, places[0] + WARM_REQUESTS, places[0] + WARM_SHARE * (places[-1] - places[0]))
    return next((index for index, place in enumerate(places) if place >= edge), len(places))


@dataclass(frozen=True, slots=True)
class Slope:
    """Megabytes per 10,000 requests, with the ends of its interval, and over how many requests."""

    middle: float
    low: float
    high: float
    requests: float

    @property
    def sure(self) -> bool:
        """Whether it is beyond the bound, by more than an allocator moves."""
        return self.low > BOUND and self.low * self.requests / PER > ALLOCATOR

    def __str__(self) -> str:
        return f"{self.middle:.3g} MB per {PER:,} requests ({self.low:.3g} to {self.high:.3g})"


def slope_of(*lives: Points) -> Slope | None:
    """Theil and Sen's slope of memory against requests: the median over all pairs of readings of one and the same life,
    with the interval that the variance of Kendall's S gives, summed over the lives. None where no life has two."""
    stride = max(1, -(-sum(map(len, lives)) // MOST_POINTS))
    slopes, variance, requests = list[np.ndarray](), 0.0, 0.0
    for life in lives:
        points = np.array(life[::stride], dtype=np.float64).reshape(-1, 2)  # [n, 2]
        one, other = np.triu_indices(len(points), 1)
        apart = points[other] - points[one]  # [n (n - 1) / 2, 2]
        slopes.append(apart[apart[:, 0] > 0, 1] / apart[apart[:, 0] > 0, 0])
        ties = [*Counter(points[:, 0]).values()], [*Counter(points[:, 1]).values()]
        variance += (spread(len(points)) - sum(spread(size) for sizes in ties for size in sizes)) / 18
        requests += points[-1, 0] - points[0, 0] if len(points) else 0.0
    found = np.sort(np.concatenate(slopes)) if slopes else np.empty(0)
    if not len(found):
        return None
    away = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * sqrt(max(variance, 0.0))
    low = max(round((len(found) - away) / 2) - 1, 0)
    high = min(round((len(found) + away) / 2), len(found) - 1)
    return Slope(PER * float(np.median(found)), PER * float(found[low]), PER * float(found[high]), requests)


def spread(size: int) -> int:
    """Eighteen times the variance of Kendall's S of so many readings without order."""
    return size * (size - 1) * (2 * size + 5)


def rise(points: Points) -> float:
    """Megabytes from the median of the first tenth of these readings to that of the last."""
    held, part = [mb for _, mb in points], max(1, len(points) // 10)
    return median(held[-part:]) - median(held[:part])


def growth(lives: Sequence[Points], least: float = WARM_REQUESTS) -> Decision:
    """Whether memory stays within `BOUND` MB per 10,000 requests, by slopes behind a warm-up of `least` requests.

    VIOLATED where the slope of one process is surely beyond it, as a whole and in each half of its time: a step to the
    largest batch so far is in one of them. HOLDS where that of all processes together lies below, no single one's
    surely beyond (but that of one that was stopped while it took its steps, if another is level that served twice as
    many requests), and they rose by no more than the bound and an allocator's moves: they are made alike and serve
    traffic that is drawn alike, so they grow alike, and the pairs of one process say as much of that as those of
    another. Else INCONCLUSIVE.
    """
    judged, beyond, level = list[Points](), list[Slope](), 0.0
    for life in lives:
        points = life[warm([requests for requests, _ in life], least) :]
        slope = slope_of(points)
        if slope is None:
            continue
        judged.append(points)
        if slope.high <= BOUND:
            level = max(level, slope.requests)
        if len(points) < FEWEST_POINTS or slope.requests < FEWEST_REQUESTS or slope.low <= BOUND:
            continue
        halves = slope_of(points[: len(points) // 2]), slope_of(points[len(points) // 2 :])
        if slope.sure and all(half is not None and half.sure for half in halves):
            return Decision(Verdict.VIOLATED, f"memory grows by {slope}, over {slope.requests:,.0f} of them")
        beyond.append(slope)
    pooled = slope_of(*judged)
    if pooled is None or sum(map(len, judged)) < FEWEST_POINTS or pooled.requests < FEWEST_REQUESTS:
        few = f"{FEWEST_REQUESTS:,} requests, with {FEWEST_POINTS} readings, without another decoder being made"
        behind = f"behind a warm-up of {max(least, WARM_REQUESTS):,.0f}"
        return Decision(Verdict.INCONCLUSIVE, f"no process served {few}, {behind}")
    told = f"memory grows by {pooled}, over {pooled.requests:,.0f} of them in {len(judged)} processes"
    if pooled.high > BOUND:
        return Decision(Verdict.INCONCLUSIVE, f"{told}: that is not surely below {BOUND:g}, nor surely above")
    alone = [slope for slope in beyond if OUTLIVED * slope.requests > level]
    if alone:
        worst = max(alone, key=lambda slope: slope.low)
        return Decision(Verdict.INCONCLUSIVE, f"{told}; of one alone by {worst}, which may be a step")
    risen, most = sum(map(rise, judged)), BOUND * pooled.requests / PER + ALLOCATOR
    if risen > most:
        return Decision(
            Verdict.INCONCLUSIVE, f"{told}; from their first tenth to their last they rose by {risen:.1f} MB"
        )
    return Decision(Verdict.HOLDS, told, delta=max(pooled.high, 0.0))
