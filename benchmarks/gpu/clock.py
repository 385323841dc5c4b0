"""How long work takes on a device: CUDA events, arms in the order A B … B A, the median and range of trials."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch

from ..results import Spread

TRIALS = 5
WARM = 2  # runs off the clock, which compile and capture
COPIES = 32  # in one timing: few of them would be as long as the events around them need
Work = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Clock:
    """Times work on one device; on the host, where kernels are interpreted, by the host's own clock."""

    device: torch.device
    trials: int = TRIALS
    warm: int = WARM

    def __call__(self, work: Work, times: int) -> float:
        """Seconds of one run among `times`, back to back."""
        if self.device.type != "cuda":
            begin = perf_counter()
            for _ in range(times):
                work()
            return (perf_counter() - begin) / times
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            work()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times

    def compare(self, arms: Mapping[str, Work], times: int) -> dict[str, list[float]]:
        """Seconds of each arm, two for each trial: all arms in their order, and once more in the opposite one."""
        for work in arms.values():
            for _ in range(self.warm):
                work()
        found: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(self.trials):
            for name in (*arms, *reversed(arms)):
                found[name].append(self(arms[name], times))
        return found


def trials_of(seconds: list[float]) -> list[float]:
    """One number for each trial: the mean of its two runs, of which one came early and one late."""
    return [(first + second) / 2 for first, second in zip(seconds[0::2], seconds[1::2], strict=True)]


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and range over trials."""
    return asdict(Spread.of(trials_of(seconds)))


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Median and range of quotients, each within its trial."""
    return asdict(Spread.of([a / b for a, b in zip(trials_of(over), trials_of(under), strict=True)]))


def copy_bandwidth(clock: Clock) -> list[float]:
    """Bytes read and written per second by a copy that no cache holds, once per trial. It leaves room below a limit."""
    size = 2**28 if clock.device.type == "cuda" else 2**16
    source = torch.empty(size, dtype=torch.uint8, device=clock.device).random_()
    target = torch.empty_like(source)
    seconds = clock.compare({"copy": lambda: target.copy_(source)}, COPIES)["copy"]
    return [2 * size / second for second in trials_of(seconds)]
