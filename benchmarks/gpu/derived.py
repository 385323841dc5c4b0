"""What follows from the measured trials: fractions, ratios, break-even, tokens per second; and what was asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..results import Spread
from .clock import trials_of

GIB = 2**30
Results = Mapping[str, Mapping[str, Any]]
"""What the parts wrote, by part; those that failed or did not run are missing."""


@dataclass(frozen=True, slots=True)
class Speed:
    """An arm at a batch and a context. Fractions are of copy bandwidth, over the bytes that must move."""

    arm: str
    batch: int
    context: int
    step: Spread  # seconds
    round: Spread
    ratio: Spread  # of a round to a step, within a trial; also the break-even acceptance length
    step_fraction: Spread
    round_fraction: Spread
    least_step: float  # seconds, at copy bandwidth
    least_round: float

    def tokens_per_second(self, acceptance: float) -> float:
        """Of the whole batch, where every round commits so many tokens of a sample on average."""
        return self.batch * acceptance / self.round.median

    def tokens(self, acceptances: Sequence[float]) -> list[float]:
        """The same for several lengths."""
        return [self.tokens_per_second(acceptance) for acceptance in acceptances]

    @property
    def tokens_without(self) -> float:
        """The same of the target alone."""
        return self.batch / self.step.median


def speeds(found: Mapping[str, Any]) -> Iterator[Speed]:
    """Every cell and arm of a part `speed`."""
    copy = median([*found["copy"], *found["copy_after"]])
    for cell in found["cells"]:
        least = [sum(cell[f"{what}_bytes"].values()) / copy for what in ("step", "round")]
        for arm in dict.fromkeys(name.rpartition(" ")[0] for name in cell["seconds"]):
            step, whole = (trials_of(cell["seconds"][f"{arm} {what}"]) for what in ("step", "round"))
            yield Speed(
                arm,
                cell["batch"],
                cell["context"],
                Spread.of(step),
                Spread.of(whole),
                quotients(whole, step),
                Spread.of([least[0] / seconds for seconds in step]),
                Spread.of([least[1] / seconds for seconds in whole]),
                *least,
            )


def quotients(over: Sequence[float], under: Sequence[float]) -> Spread:
    return Spread.of([a / b for a, b in zip(over, under, strict=True)])


def added(arm: Mapping[str, Any]) -> Spread:
    """The share of a round that selector and convolutions are, by leaving them out."""
    whole, bare = (trials_of(seconds) for seconds in arm["rounds"].values())
    return Spread.of([1 - without / with_all for without, with_all in zip(bare, whole, strict=True)])


@dataclass(frozen=True, slots=True)
class Goal:
    """Something asked for: `found` is at most `bound`, or with `least` at least."""

    title: str
    bound: float
    found: Spread | None
    unit: str = ""
    least: bool = False

    @property
    def verdict(self) -> str:
        if self.found is None:
            return "not measured"
        met = self.found.median >= self.bound if self.least else self.found.median <= self.bound
        return "met" if met else f"missed by {abs(self.found.median - self.bound):.3g}{self.unit}"


def goals(results: Results) -> list[Goal]:
    """All that the full geometry is asked for, on the fastest arm there is, at the shortest context."""
    peak = results.get("memory")
    best = fastest(results)
    breakdown = results.get("breakdown")
    share = min((added(arm) for arm in breakdown[0]["arms"].values()), key=lambda s: s.median) if breakdown else None
    peer = results.get("transformers")
    times = None
    if best is not None and peer is not None:
        times = Spread.of([seconds / best.step.median for seconds in trials_of(peer["seconds"])])
    fla = "" if peer is None or peer["fla"] else " (flash-linear-attention was not there)"
    used = None if peak is None else Spread.of([peak["device_used"] / GIB])
    return [
        Goal("15 × 4,096 with the drafter, peak of the device", 29.21, used, " GiB"),
        Goal("target step at batch 1, of copy bandwidth", 0.70, best and best.step_fraction, least=True),
        Goal("round over step at batch 1, drafter in NVFP4", 1.25, best and best.ratio),
        Goal("selector and convolutions, share of a round at batch 1", 0.013, share),
        Goal(f"step at batch 1, times as fast as Transformers{fla}", 5.0, times, least=True),
    ]


def fastest(results: Results) -> Speed | None:
    """The arm with the shortest step at batch 1 and the shortest context."""
    found = [speed for speed in speeds(results["speed"])] if "speed" in results else []
    shortest = min((speed.context for speed in found), default=0)
    alone = [speed for speed in found if speed.batch == 1 and speed.context == shortest]
    return min(alone, key=lambda speed: speed.step.median, default=None)
