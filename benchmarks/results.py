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
    """All trials of an arm at a batch size: tokens per second of each, and what the first one told beside it."""

    model: str
    batch: int
    arm: str
    label: str
    speeds: Mapping[int, float]  # by trial
    info: Mapping[str, Any]

    @property
    def speed(self) -> Spread:
        return Spread.of(tuple(self.speeds.values()))

    def over(self, other: "Cell") -> Spread:
        """How many times faster than another, trial by trial."""
        return Spread.of([self.speeds[trial] / other.speeds[trial] for trial in self.speeds if trial in other.speeds])

    def same(self, other: "Cell") -> int:
        """How many of its requests have the very output that they have in another."""
        return sum(a == b for a, b in zip(self.info["outputs"], other.info["outputs"], strict=True))


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
    return {
        key: Cell(
            *key,
            entries[0]["extra_info"]["label"],
            {e["extra_info"]["trial"]: e["extra_info"]["tokens"] / e["stats"]["median"] for e in entries},
            entries[0]["extra_info"],
        )
        for key, entries in found.items()
    }


def goals(cells: Cells) -> list[tuple[str, Goal, Spread | None]]:
    """Each goal on each model; None where one of its arms was not measured."""

    def ratio(model: str, goal: Goal) -> Spread | None:
        arm, base = (cells.get((model, goal.batch, name)) for name in (goal.arm, goal.base))
        return None if arm is None or base is None else arm.over(base)

    return [(model, goal, ratio(model, goal)) for model in dict.fromkeys(key[0] for key in cells) for goal in GOALS]


def busy(content: Mapping[str, Any]) -> float:
    """The share of the measured time in which the arms did not get the processor, median over all runs."""
    shares = [e["extra_info"]["cpu_seconds"] / e["stats"]["median"] for e in content["benchmarks"]]
    return 1.0 - median(shares)
