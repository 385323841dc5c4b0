"""A process for one arm, so that threads, caches and peak memory are its own."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import torch

from .arms import BUILDERS, Arm, Prompts, Ran, Runner
from .traffic import traffic

WARM = 8  # tokens of a first run, off the clock


@dataclass(slots=True)
class Last:
    """The last run of this process."""

    prompts: Prompts
    tokens: int
    result: Any
    cpu_seconds: float


class Engine:
    """What lives inside the process."""

    arm: Arm
    runner: Runner
    loaded: int | None
    last: Last


def build(arm: Arm, threads: int) -> None:
    torch.set_num_threads(threads)
    Engine.arm, Engine.runner = arm, BUILDERS[arm.engine](arm.setup)
    Engine.loaded = memory("VmRSS")


def run(prompts: Prompts, tokens: int) -> None:
    """What is timed."""
    start = process_time()
    result = Engine.runner.run(prompts, tokens)
    Engine.last = Last(prompts, tokens, result, process_time() - start)


def account() -> dict[str, Any]:
    """Everything about the last run but its duration; `outputs` are digests, equal where outputs are."""
    last, peak = Engine.last, memory("VmHWM")
    ran: Ran = Engine.runner.observe(last.prompts, last.tokens, last.result)
    return {
        "tokens": sum(map(len, ran.outputs)),
        "forwards": ran.passes,
        **asdict(traffic(ran, Engine.arm.setup)),
        "cpu_seconds": last.cpu_seconds,
        "peak_bytes": peak,
        "loaded_bytes": Engine.loaded,
        "outputs": [sha256(repr(output).encode()).hexdigest()[:16] for output in ran.outputs],
    }


def memory(name: str) -> int | None:
    """A size of this process in bytes as Linux tells it: VmRSS now, VmHWM the largest so far; None elsewhere.

    Not ru_maxrss: a child process inherits that from the one that started it.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), None)


class Worker:
    """The handle of an arm's process; an error in there is raised here."""

    def __init__(self, arm: Arm, threads: int) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self._warm: set[int] = set()
        self._pool.submit(build, arm, threads).result()

    def warm(self, prompts: Prompts, tokens: int) -> None:
        """A short run before the first one of a batch size."""
        if len(prompts) not in self._warm:
            self._warm.add(len(prompts))
            self.run(prompts, min(tokens, WARM))

    def run(self, prompts: Prompts, tokens: int) -> None:
        self._pool.submit(run, prompts, tokens).result()

    def account(self) -> dict[str, Any]:
        return self._pool.submit(account).result()

    def close(self) -> None:
        self._pool.shutdown()
