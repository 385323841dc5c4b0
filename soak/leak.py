"""Memory that grows with the requests, which no single epoch shows.

What is free at rest, and how many objects there are behind the same traffic, is exact and an epoch's own business. The
memory of a process is noisy, and has a bound: `BOUND`, on the slope that Theil and Sen's estimator finds behind the
warm-up.
"""

from collections.abc import Sequence
from math import inf

from specqual.conformance.verdicts import Decision, Verdict

BOUND = 1.0  # MB of growth that 10,000 requests may bring
PER = 10_000  # requests
WARM_SHARE = 0.2  # of a life, in which pools, caches and what is remembered fill up
WARM_REQUESTS = 2_000  # at least
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


def growth(lives: Sequence[Points]) -> Decision:
    """Whether memory stays within `BOUND` MB per 10,000 requests, by the slope of each process behind its warm-up.

    VIOLATED where the whole interval of a slope lies above the bound, and what it grew by is more than an allocator
    moves; HOLDS where the intervals of all processes that served long enough lie below; else INCONCLUSIVE.
    """
    try:
        from scipy.stats import theilslopes
    except ImportError:
        return Decision(Verdict.SKIPPED, "the slope of memory needs scipy: pip install specqual[soak]")
    judged, worst, slope = 0, -inf, -inf
    for life in lives:
        points = life[warm([requests for requests, _ in life]) :]
        if len(points) < FEWEST_POINTS or points[-1][0] - points[0][0] < FEWEST_REQUESTS:
            continue
        served, held = zip(*points, strict=True)
        found = theilslopes(held, served, CONFIDENCE)
        middle, low, high = (PER * float(value) for value in (found.slope, found.low_slope, found.high_slope))
        span = (served[-1] - served[0]) / PER
        if low > BOUND and low * span > ALLOCATOR:
            told = f"{middle:.3g} MB per {PER:,} requests ({low:.3g} to {high:.3g}), over {span * PER:,.0f} of them"
            return Decision(Verdict.VIOLATED, f"memory grows by {told}")
        judged, worst, slope = judged + 1, max(worst, high), max(slope, middle)
    if not judged:
        few = f"{FEWEST_REQUESTS:,} requests behind a warm-up of {WARM_REQUESTS:,}"
        return Decision(Verdict.INCONCLUSIVE, f"no process served {few}")
    told = f"memory grows by {slope:.3g} MB per {PER:,} requests, at most {worst:.3g}, in {judged} processes"
    if worst > BOUND:
        return Decision(Verdict.INCONCLUSIVE, f"{told}: too noisy for a bound of {BOUND:g}")
    return Decision(Verdict.HOLDS, told, delta=max(worst, 0.0))
