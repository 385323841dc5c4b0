"""A worker: a process with the decoders of all stages, which serves the epochs that it is given."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from time import monotonic, time
from typing import Any

import torch

from specqual.conformance.drive import DecoderError
from specqual.conformance.lab import Run
from specqual.conformance.resolve import resolve
from specqual.conformance.sources import SUITE, fingerprint, sources, versions
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup

from .chaos import PREFIX, Scene, drilled
from .epoch import Played, heard, play
from .gauges import Meter
from .journal import Epoch, Served, Violation
from .scenarios import SCENARIOS, deck
from .stage import GROUNDS, NoStage, Stage

Task = tuple[str, int]
"""A scenario's name and the number of one of its epochs."""


@dataclass(frozen=True, slots=True)
class About:
    """What a run is: everything that its verdict rows are a function of."""

    decoder: str
    setup: Setup
    seed: int
    scenarios: tuple[str, ...]
    scale: float = 1.0  # of the numbers of requests

    def json(self) -> dict[str, Any]:
        setup = self.setup
        return {
            "decoder": self.decoder,
            "target": str(setup.target),
            "draft": None if setup.draft is None else str(setup.draft),
            "rule": str(setup.rule),
            "draft_length": setup.draft_length,
            "dtype": setup.dtype,
            "options": {name: str(value) for name, value in setup.options.items()},
            "seed": self.seed,
            "scenarios": list(self.scenarios),
            "scale": self.scale,
        }

    def made_with(self) -> dict[str, Any]:
        """What its rows follow from beside: another code, checkpoint or device may say something else."""
        setup, device = self.setup, "cpu"
        if torch.cuda.is_available():
            device = torch.cuda.get_device_name()
        checkpoints = {"target": setup.target, "draft": setup.draft}
        prints = {name: None if path is None else fingerprint(path) for name, path in checkpoints.items()}
        return {
            "code": sources(*SUITE, "decoder", "adapters", "soak")[:16],
            **{f"version of {name}": number for name, number in versions().items()},
            **{f"fingerprint of {name}": digest for name, digest in prints.items()},
            "device": device,
        }

    def tasks(self) -> Iterator[Task]:
        """All epochs of the run in the order in which they are handed out, without end."""
        numbers = {name: count() for name in self.scenarios}
        wanted = [SCENARIOS[name] for name in self.scenarios if name in SCENARIOS]
        yield from ((name, 0) for name in self.scenarios if name not in SCENARIOS)  # drills, which are made once
        for number in count():
            yield from ((scenario.name, next(numbers[scenario.name])) for scenario in deck(self.seed, number, wanted))


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
