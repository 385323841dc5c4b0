"""A worker: a process with the decoders of all stages, which serves the epochs that it is given."""

import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from time import monotonic, time

import torch

from specqual.conformance.lab import Run
from specqual.conformance.resolve import resolve
from specqual.conformance.verdicts import Verdict

from .about import About, Task
from .chaos import PREFIX, Scene, drilled
from .epoch import Played, broken, heard, play
from .gauges import Meter
from .hazards import SKIP
from .records import Epoch, Served
from .scenarios import SCENARIOS
from .stage import GROUNDS, NoStage, Stage


class World:
    """The stages of one process. A stage that cannot be had is asked for once."""

    def __init__(self, about: About) -> None:
        self.about, self.stages = about, dict[str, Stage]()
        self.run = Run(about.decoder, resolve(about.decoder), about.setup, seed=about.seed)
        self.meter = Meter()

    def stage(self, name: str) -> Stage:
        if name not in self.stages:
            self.stages[name] = Stage(GROUNDS[name], self.run, self.about.scale)
        return self.stages[name]

    def play(self, task: Task, gauges: Callable[[dict[str, float]], None] | None = None) -> Played:
        """Serve one epoch, whose bundles say how it is served again; `gauges` is called with gauges when they are due.
        Whatever is raised on the way is in the epoch."""
        drill = task[0].startswith(PREFIX)
        stage = self.stage("nano" if drill else SCENARIOS[task[0]].stage)
        behind = () if drill else tuple(stage.behind)
        try:
            played = self._drilled(task, stage) if drill else self._served(task, stage, gauges)
        except NoStage as error:
            played = Played(Epoch(*task, Verdict.SKIPPED, "", {f"{SKIP}{error}": 1}), 0.0)
        except Exception as error:
            stage.renew()
            self.meter.idle()
            played = Played(broken(task, error), 0.0)
        if gauges is not None and self.meter.rests:
            gauges(self.meter.at_rest())
        return self._located(played, behind)

    def _served(self, task: Task, stage: Stage, gauges: Callable[[dict[str, float]], None] | None) -> Played:
        """Serve and judge an epoch."""
        scenario, number = SCENARIOS[task[0]], task[1]
        if gauges is None:
            return play(stage, scenario, self.about.seed, number)
        self.meter.decoders[stage.ground.name] = stage.decoder
        return play(stage, scenario, self.about.seed, number, heard(self.meter, gauges))

    def _drilled(self, task: Task, stage: Stage) -> Played:
        """Put one kind of fault into decoders that are made for it."""
        scene = Scene(self.run.make, stage.setup, self.about.seed)
        return Played(drilled(task[0].removeprefix(PREFIX), scene, task[1]), 0.0)

    def _located(self, played: Played, behind: Sequence[Task]) -> Played:
        """An epoch whose bundles say how it is served again."""
        epoch = played.epoch
        if not epoch.violations:
            return played
        again = self.about.again((epoch.scenario, epoch.number), behind)
        located = (replace(v, bundle=None if v.bundle is None else {**again, **v.bundle}) for v in epoch.violations)
        return replace(played, epoch=replace(epoch, violations=tuple(located)))

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()


def main(connection: Connection, about: About, index: int, folder: str) -> None:
    """Serve epochs until the other end of the connection is closed. What is kept for a while lies in the folder, which
    is whose who began this process: it may be killed, and then clears nothing up."""
    tempfile.tempdir = folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that it clears up
    torch.set_num_threads(1)
    world = World(about)
    try:
        while (task := connection.recv()) is not None:
            started, began = time(), monotonic()
            played = world.play(task, lambda values: connection.send(("gauges", values)))
            served = Served(index, started, monotonic() - began, played.oracle_seconds)
            connection.send(("epoch", played.epoch, served))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # nobody is left to tell
    finally:
        world.close()
