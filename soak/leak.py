"""Memory that grows with the requests, which no single epoch shows.

What is free at rest, and how many objects there are behind the same traffic, is exact and an epoch's own business. The
memory of a process is noisy, and has a bound: `BOUND`, on the slope that Theil and Sen's estimator finds behind the
warm-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specqual.conformance.verdicts import Decision, Verdict

BOUND = 1.0  # MB of growth that 10,000 requests may bring
PER = 10_000  # requests
WARM_SHARE = 0.2  # of a life, in which pools, caches and what is remembered fill up
WARM_REQUESTS = 2_000  # at least
MOST_POINTS = 1_000  # of one slope, which looks at all pairs of them
FEWEST_POINTS = 24  # behind the warm-up
FEWEST_REQUESTS = 2_000  # behind the warm-up
ALLOCATOR = 4.0  # MB; a process gains or loses as much by the way its allocator keeps free memory
CONFIDENCE = 0.999  # of the interval of a slope, both sides together

Points = Sequence[tuple[float, float]]
"""(requests served so far, megabytes) of one process, from its start on."""


def warm(places: Sequence[float]) -> int:
    """The first of these rising request counts of one life that lies behind its warm-up; their number if none does."""
    if not places:
        return 0
    edge = max(places[0] + WARM_REQUESTS, places[0] + WARM_SHARE * (places[-1] - places[0]))
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


def slope_of(points: Points) -> Slope:
    """Theil and Sen's slope of memory against requests."""
    from scipy.stats import theilslopes

    served, held = zip(*points[:: -(-len(points) // MOST_POINTS)], strict=True)
    found = theilslopes(held, served, CONFIDENCE)
    middle, low, high = (PER * float(value) for value in (found.slope, found.low_slope, found.high_slope))
    return Slope(middle, low, high, served[-1] - served[0])


def growth(lives: Sequence[Points]) -> Decision:
    """Whether memory stays within `BOUND` MB per 10,000 requests, by the slope of each process behind its warm-up.

    VIOLATED where a slope is surely beyond it in each half of a process's time: a step to the largest batch so far is
    in one of them. HOLDS where the intervals of all processes that served long enough lie below; else INCONCLUSIVE.
    """
    judged = list[Slope]()
    for life in lives:
        points = life[warm([requests for requests, _ in life]) :]
        if len(points) < FEWEST_POINTS or points[-1][0] - points[0][0] < FEWEST_REQUESTS:
            continue
        try:
            slope = slope_of(points)
        except ImportError:
            return Decision(Verdict.SKIPPED, "the slope of memory needs scipy: pip install specqual[soak]")
        middle = len(points) // 2
        if slope.sure and slope_of(points[:middle]).sure and slope_of(points[middle:]).sure:
            return Decision(Verdict.VIOLATED, f"memory grows by {slope}, over {slope.requests:,.0f} of them")
        judged.append(slope)
    if not judged:
        few = f"{FEWEST_REQUESTS:,} requests behind a warm-up of {WARM_REQUESTS:,} without another decoder being made"
        return Decision(Verdict.INCONCLUSIVE, f"no process served {few}")
    worst = max(judged, key=lambda slope: slope.high)
    told = f"memory grows by {worst} in the worst of {len(judged)} processes"
    if worst.high > BOUND:
        return Decision(Verdict.INCONCLUSIVE, f"{told}: that is not surely below {BOUND:g}, nor surely above")
    return Decision(Verdict.HOLDS, told, delta=max(worst.high, 0.0))
