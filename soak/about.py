"""About: what a run is, and the order in which its epochs are handed out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from specqual.conformance.sources import SUITE, fingerprint, sources, versions
from specqual.contract import Setup

from .scenarios import SCENARIOS, deck

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
