"""What pytest-benchmark wrote, gathered per model, batch and arm, and compared within each trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over trials."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Cell:
    """All trials of an arm at a batch size: tokens per second of each, by the clock and of processor time, and what the
    first trial told beside it."""

    model: str
    batch: int
    arm: str
    label: str
    speeds: Mapping[int, float]  # by trial
    cpu_speeds: Mapping[int, float]
    info: Mapping[str, Any]

    @property
    def speed(self) -> Spread:
        return Spread.of(tuple(self.speeds.values()))

    def over(self, other: "Cell") -> Spread:
        """How many times faster than another, trial by trial."""
        return _ratios(self.speeds, other.speeds)

    def cpu_over(self, other: "Cell") -> Spread:
        """The same in processor time: what a busy machine disturbs less."""
        return _ratios(self.cpu_speeds, other.cpu_speeds)

    def same(self, other: "Cell") -> int:
        """How many of its requests have the very output that they have in another."""
        return sum(a == b for a, b in zip(self.info["outputs"], other.info["outputs"], strict=True))


def _ratios(speeds: Mapping[int, float], others: Mapping[int, float]) -> Spread:
    return Spread.of([speeds[trial] / others[trial] for trial in speeds if trial in others])


Cells = Mapping[tuple[str, int, str], Cell]


@dataclass(frozen=True, slots=True)
class Goal:
    """One of the three ratios asked for: `arm` at least (or more than) so many times as fast as `base`."""

    title: str
    batch: int
    arm: str
    base: str
    times: float
    strictly: bool = False

    def verdict(self, ratio: Spread | None) -> str:
        if ratio is None:
            return "not measured"
        met = ratio.median > self.times if self.strictly else ratio.median >= self.times
        return "met" if met else f"missed by {self.times - ratio.median:.2f}"


GOALS = (
    Goal("DFlash 2 above target only, batch 1", 1, "dflash2", "target-only", 1.0, strictly=True),
    Goal("target only, batch 8, at least twice Transformers' batched generate", 8, "target-only", "transformers", 2.0),
    Goal("DFlash 2, batch 1, at least twice dflash_generate", 1, "dflash2", "dflash-generate", 2.0),
)


def gather(content: Mapping[str, Any]) -> Cells:
    """The cells of a run, in the order in which they were first measured."""
    found: dict[tuple[str, int, str], list[Mapping[str, Any]]] = {}
    for entry in content["benchmarks"]:
        info = entry["extra_info"]
        found.setdefault((info["model"], info["batch"], info["arm"]), []).append(entry)
    return {key: _cell(key, entries) for key, entries in found.items()}


def _cell(key: tuple[str, int, str], entries: Sequence[Mapping[str, Any]]) -> Cell:
    infos = [entry["extra_info"] for entry in entries]
    speeds = {i["trial"]: i["tokens"] / e["stats"]["median"] for i, e in zip(infos, entries, strict=True)}
    return Cell(*key, infos[0]["label"], speeds, {i["trial"]: i["tokens"] / i["cpu_seconds"] for i in infos}, infos[0])


@dataclass(frozen=True, slots=True)
class Found:
    """What a goal comes to on a model; the ratios are None where one of its arms was not measured."""

    model: str
    goal: Goal
    ratio: Spread | None
    cpu_ratio: Spread | None

    @property
    def verdict(self) -> str:
        return self.goal.verdict(self.ratio)


def goals(cells: Cells) -> list[Found]:
    """Each goal on each model."""

    def found(model: str, goal: Goal) -> Found:
        arm, base = (cells.get((model, goal.batch, name)) for name in (goal.arm, goal.base))
        if arm is None or base is None:
            return Found(model, goal, None, None)
        return Found(model, goal, arm.over(base), arm.cpu_over(base))

    return [found(model, goal) for model in dict.fromkeys(key[0] for key in cells) for goal in GOALS]


def busy(content: Mapping[str, Any]) -> float:
    """The share of the measured time in which the arms did not get the processor, median over all runs."""
    shares = [e["extra_info"]["cpu_seconds"] / e["stats"]["median"] for e in content["benchmarks"]]
    return 1.0 - median(shares)
