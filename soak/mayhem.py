"""What --chaos does to a run while it goes on: workers are killed, and the journal's disk is full now and then.

Neither may leave a trace in what is recorded: an epoch whose worker was killed is served again, and one that could not
be written is written later.
"""

import os
import signal
from collections.abc import Callable
from random import Random
from time import monotonic

from .chaos import KILLED, PREFIX, REFUSED
from .disk import at_most
from .journal import Journal
from .records import Epoch, Finding, Served
from .run import Soak

KILLS = (20.0, 60.0)  # seconds between two of them
FULL = 7  # of so many epochs, one finds the disk full at first


class Mayhem:
    """Kills the process of one worker after another, each in the midst of an epoch that it has not killed before."""

    def __init__(self, seed: int, now: Callable[[], float] = monotonic) -> None:
        self._chance, self._now = Random(f"{seed}/mayhem"), now
        self._next = now() + self._chance.uniform(*KILLS)

    def tick(self, soak: Soak) -> None:
        """Kill one, if it is time to."""
        if self._now() < self._next:
            return
        busy = [worker for worker in soak.team if worker.task is not None and worker.task not in soak.died]
        busy = [worker for worker in busy if not worker.task[0].startswith(PREFIX)]  # drills take minutes
        if not busy:
            return
        victim = self._chance.choice(busy)
        if victim.process.pid is not None:
            os.kill(victim.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            victim.killed = True
            soak.journal.gauge(-1, {KILLED: 1})
        self._next = self._now() + self._chance.uniform(*KILLS)


class Cramped(Journal):
    """A journal whose disk is full for every so manieth epoch, and has room again when it is tried once more."""

    _turn = 0

    def add(self, segment: int, epoch: Epoch, served: Served) -> tuple[Finding, ...]:
        self._turn += 1
        if self._turn % FULL:
            return super().add(segment, epoch, served)
        try:
            with at_most(1):
                return super().add(segment, epoch, served)
        finally:
            self.gauge(-1, {REFUSED: 1})
