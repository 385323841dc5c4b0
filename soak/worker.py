"""A worker: a process with the decoders of all stages, which serves the epochs that it is given."""

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from time import monotonic, time

import torch

from specqual.conformance.drive import DecoderError
from specqual.conformance.lab import Run
from specqual.conformance.resolve import resolve
from specqual.conformance.verdicts import Verdict

from .about import About, Task
from .chaos import PREFIX, Scene, drilled
from .epoch import Played, heard, play
from .gauges import Meter
from .records import Epoch, Served, Violation
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
        """Serve one epoch; `gauges` is called with gauges when they are due."""
        if task[0].startswith(PREFIX):
            return self.drill(task)
        scenario = SCENARIOS[task[0]]
        stage = self.stage(scenario.stage)
        if gauges is None:
            return play(stage, scenario, self.about.seed, task[1])
        with suppress(NoStage, DecoderError):  # the epoch will say so
            self.meter.decoders[stage.ground.name] = stage.decoder
        played = play(stage, scenario, self.about.seed, task[1], heard(self.meter, gauges))
        if self.meter.rests:
            gauges(self.meter.at_rest())
        return played

    def drill(self, task: Task) -> Played:
        """Put one kind of fault into decoders that are made for it."""
        name, number = task
        again = {**self.about.json(), "scenario": name, "epoch": number, "behind": []}
        try:
            scene = Scene(self.run.make, self.stage("nano").setup, self.about.seed)
        except NoStage as error:
            return Played(Epoch(name, number, Verdict.SKIPPED, "", {f"skipped: {error}": 1}), 0.0)
        except DecoderError as error:
            told = Violation("decoder", str(error), again)
            return Played(Epoch(name, number, Verdict.ERROR, "", violations=(told,)), 0.0)
        found = drilled(name.removeprefix(PREFIX), scene, number)
        located = (replace(one, bundle={**again, **one.bundle}) for one in found.violations)
        return Played(replace(found, violations=tuple(located)), 0.0)

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()


def main(connection: Connection, about: About, index: int) -> None:
    """Serve epochs until the other end of the connection is closed."""
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
