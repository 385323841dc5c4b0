"""Gauges: what one worker reads off its decoder and its process every ten seconds, while it serves.

Gauges tell how a run goes. No verdict row rests on them, so they may differ from run to run; the slope of memory is
judged over many of them (`leak`).
"""

import ctypes
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from specqual.contract import Counted, Event, Inspectable, Round, Tokens

from .calls import called

EVERY = 10.0  # seconds
RESTS = 15.0  # seconds between two readings at rest, which take a fifth of one
AT_REST = "memory at rest"
PROCESS = "process"
MEGA = 1e6


def resident() -> float:
    """Memory of this process in MB; its peak where the system tells nothing else."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    import mmap

    return pages * mmap.PAGESIZE / MEGA


def trimmed() -> float:
    """Memory of this process in MB once garbage is gone and, where the C library can, what its allocator keeps free has
    been given back: else the largest batch so far would look like growth."""
    gc.collect()
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return resident()


def on_device(device: str) -> float | None:
    """Memory that tensors hold on a device, in MB; None for the host."""
    return torch.cuda.memory_allocated(device) / MEGA if device.startswith("cuda") else None


def stretch(generated: int) -> int:
    """The lower edge of the stretch of output, 0, 1, 2, 4, 8, …, that a round begins in."""
    return 1 << (generated.bit_length() - 1) if generated else 0


def by_stretch(prompt: int, rounds: Iterable[Round]) -> tuple[Counter[int], Counter[int]]:
    """Rounds with drafts, and drafts accepted in them, by how much their sample had generated when they began."""
    drafted, accepted = Counter[int](), Counter[int]()
    for r in rounds:
        if r.proposals:
            place = stretch(r.start + 1 - prompt)
            drafted[place] += 1
            accepted[place] += r.accepted
    return drafted, accepted


@dataclass
class Meter:
    """What a worker's gauges are read from: told of everything that happens, and asked after every tick if it is `due`.

    `decoders` are those that live in this process, by the name of what they stand on. `requests` and `tokens` count
    since the process began, as its memory does.
    """

    clock: Callable[[], float] = monotonic
    decoders: dict[str, Any] = field(default_factory=dict)
    requests: int = 0  # ended
    tokens: int = 0
    live: int = 0  # submitted and not ended: in, preempted or waiting
    worst: float = 0.0  # regret, nats
    drafted: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._last, self._told = self.clock(), 0
        self._rested = self._last

    def submitted(self) -> None:
        self.live += 1

    def heard(self, events: Iterable[Event]) -> None:
        """Count the tokens among what a step returned."""
        self.tokens += sum(len(event.ids) for event in events if isinstance(event, Tokens))

    def ended(self, prompt: int, rounds: Iterable[Round]) -> None:
        """Count a request behind a prompt of so many tokens."""
        self.live -= 1
        self.requests += 1
        drafted, accepted = by_stretch(prompt, rounds)
        self.drafted += drafted
        self.accepted += accepted

    def judged(self, regret: float) -> None:
        self.worst = max(self.worst, regret)

    def idle(self) -> None:
        """Nobody is served: the epoch has ended, or broke."""
        self.live = 0

    @property
    def due(self) -> bool:
        return self.clock() - self._last >= EVERY

    @property
    def rests(self) -> bool:
        """Whether nobody is served, and it is time to read what memory is taken all the same."""
        return not self.live and self.clock() - self._rested >= RESTS

    def at_rest(self) -> dict[str, float]:
        """The memory that is taken although nobody is served."""
        self._rested = self.clock()
        return {**self._own(), AT_REST: trimmed()}

    def _own(self) -> dict[str, float]:
        """What every reading begins with."""
        return {PROCESS: os.getpid(), "requests": self.requests, "decoders": len(self.decoders)}

    def read(self) -> dict[str, float]:
        """All gauges by name, as of now."""
        now = self.clock()
        since, told = now - self._last, self._told
        self._last, self._told = now, self.tokens
        found = {
            **self._own(),
            "tokens": self.tokens,
            "tokens/s": (self.tokens - told) / since if since else 0.0,
            "queue": self.live,
            "memory": resident(),
            "worst regret": self.worst,
        }
        devices = {decoder.claims.device for decoder in self.decoders.values()}
        held = [size for size in map(on_device, sorted(devices)) if size is not None]
        if held:
            found["device memory"] = sum(held)
        for name, decoder in self.decoders.items():
            if isinstance(decoder, Inspectable):
                found |= {f"free {kind} {name}": count for kind, count in called(decoder.resources).items()}
            if isinstance(decoder, Counted) and "graph_captures" in (counters := called(decoder.counters)):
                found[f"graph captures {name}"] = counters["graph_captures"]
        for place in self.drafted:
            found[f"drafted @{place}"] = self.drafted[place]
            found[f"accepted @{place}"] = self.accepted[place]
        return found
