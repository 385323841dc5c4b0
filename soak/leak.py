"""Leaks that no single epoch shows: objects of the decoder that pile up, and memory that grows with the requests.

What is free at rest is exact, and every epoch's own business. Objects may come and go with what a decoder remembers of
the last requests, so they must only not pile up. The memory of a process is noisy, and has a bound: `BOUND`, on the
slope that Theil and Sen's estimator finds behind the warm-up.
"""

import gc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import torch

from specqual.conformance.verdicts import Decision, Verdict

BOUND = 1.0  # MB of growth that 10,000 requests may bring
PER = 10_000  # requests
WARM_SHARE = 0.2  # of a life, in which pools, caches and what is remembered fill up
WARM_REQUESTS = 2_000  # at least
FEWEST_POINTS = 24  # behind the warm-up
FEWEST_REQUESTS = 2_000  # behind the warm-up
ALLOCATOR = 4.0  # MB; a process gains or loses as much by the way its allocator keeps free memory
CONFIDENCE = 0.999  # of the interval of a slope, both sides together
QUARTER = 8  # points in each of the first and the last quarter, at least

Points = Sequence[tuple[float, float]]
"""(requests served so far, megabytes) of one process, from its start on."""


def census(decoders: Iterable[object]) -> Counter[str]:
    """How many objects there are of each class of these decoders' own packages, and of tensors, without garbage."""
    gc.collect()
    packages = {package(type(decoder).__module__) for decoder in decoders}
    found = Counter[str]()
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is torch.Tensor or package(str(kind.__module__)) in packages:
            found[kind.__qualname__] += 1
    return found


def package(module: str) -> str:
    """What a module belongs to: specqual.decoder.pages to specqual.decoder, vllm.engine to vllm."""
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "specqual" else 1])


def warm(places: Sequence[float]) -> int:
    """The first of these rising request counts of one life that lies behind its warm-up; their number if none does."""
    if not places:
        return 0
    edge = max(places[0] + WARM_REQUESTS, places[0] + WARM_SHARE * (places[-1] - places[0]))
    return next((index for index, place in enumerate(places) if place >= edge), len(places))


def piled(lives: Sequence[Sequence[tuple[float, Mapping[str, int]]]]) -> Decision:
    """Whether objects of some class pile up: behind the warm-up, the fewest of the last quarter are more than the most
    of the first. Each life is one process's (requests, census) at its points of rest.

    Counts that only come and go have that order, for quarters of k points, with chance k!² / (2k)!: 1 in 12,870 at 8.
    It is therefore asked of the whole life, and again without its last quarter, before a class is called growing.
    """
    judged, grown = 0, list[str]()
    for life in lives:
        points = [count for _, count in life[warm([requests for requests, _ in life]) :]]
        if len(points) < 4 * QUARTER:
            continue
        judged += 1
        for kind in sorted(set().union(*points)):
            series = [count.get(kind, 0) for count in points]
            rise = min(risen(series), risen(series[: -len(series) // 4]))
            if rise > 0:
                grown.append(f"{kind} from {series[0]} to {series[-1]}")
    if grown:
        return Decision(Verdict.VIOLATED, f"objects pile up: {', '.join(grown)}")
    if not judged:
        return Decision(Verdict.INCONCLUSIVE, f"no process was seen {4 * QUARTER} times at rest behind its warm-up")
    return Decision(Verdict.HOLDS, f"no class of objects grew, in {judged} processes")


def risen(series: Sequence[int]) -> int:
    """How far the floor of the last quarter lies above the ceiling of the first; negative where they overlap."""
    quarter = max(1, len(series) // 4)
    return min(series[-quarter:]) - max(series[:quarter])


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
