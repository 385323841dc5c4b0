"""About: what a run is, and the order in which its epochs are handed out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from specqual.conformance.resolve import source_of
from specqual.conformance.sources import SUITE, fingerprint, sources, versions
from specqual.contract import Rule, Setup

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
            "code of the decoder": source_of(self.decoder),
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

    def on(self, stage: str) -> Iterator[Task]:
        """All epochs of the run on one stage in order, without end; none where none of its scenarios stands there."""
        here = {name for name in self.scenarios if stage_of((name, 0)) == stage}
        return (task for task in self.tasks() if task[0] in here) if here else iter(())

    def again(self, task: Task, behind: Sequence[Task] = ()) -> dict[str, Any]:
        """What serves an epoch again. Those of the epochs `behind` it that stood on the same stage, and so had the same
        decoder, are ranges, first and last, of their places among all of the run there, in the order in which they were
        served."""
        places, stage = dict[Task, int](), stage_of(task)
        behind = [one for one in behind if stage is not None and stage_of(one) == stage]
        if stage is not None and behind:
            wanted = {*behind}
            for place, one in enumerate(self.on(stage)):
                if one in wanted:
                    places[one] = place
                    if len(places) == len(wanted):
                        break
        told = ranges(places[one] for one in behind)
        return {**self.json(), "scenario": task[0], "epoch": task[1], "behind": told}

    def behind(self, bundle: Mapping[str, Any]) -> list[Task]:
        """The epochs that a bundle says were served before its own, in order; LookupError, TypeError or ValueError
        where it says nothing of the kind."""
        places = [place for first, last in bundle["behind"] for place in range(first, last + 1)]
        on = list(islice(self.on(SCENARIOS[bundle["scenario"]].stage), max(places, default=-1) + 1)) if places else []
        return [on[place] for place in places]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "About":
        """The run that `json` tells of; LookupError, TypeError or ValueError where that tells of none."""
        setup = Setup(
            target=Path(told["target"]),
            draft=None if told["draft"] is None else Path(told["draft"]),
            rule=Rule(told["rule"]),
            **{name: told[name] for name in ("draft_length", "dtype", "options")},
        )
        return cls(told["decoder"], setup, told["seed"], tuple(told["scenarios"]), told["scale"])


def stage_of(task: Task) -> str | None:
    """The stage that an epoch is served on; None of a drill, which makes decoders of its own."""
    return SCENARIOS[task[0]].stage if task[0] in SCENARIOS else None


def ranges(places: Iterable[int]) -> list[list[int]]:
    """Numbers as ranges, first and last, of those that follow one upon the other."""
    found = list[list[int]]()
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return found
