"""Chaos: faults that are put in on purpose. Each is survived, or ends in a clear verdict; nothing recorded is lost.

A drill serves the same few requests over and over, and strikes at every place where its fault can, for n = 1, 2, 3 …
until there is no such place. What came of it is an epoch of the run like any other.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file, save_file

from specqual.conformance.verdicts import Verdict
from specqual.contract import Make, Request, SeedContract, Setup

from .afflictions import NoDrill, allocating, consuming, drafting, drawing, nan_laws, nothing, stepping
from .disk import full_disk
from .records import Epoch, Violation
from .trial import Affliction, Fate, Trial, trial, tried, undisturbed, workload

PREFIX = "chaos: "  # of the names of its scenarios
KILLED, REFUSED = "workers killed", "epochs refused by the disk"  # gauges of what is done to a run while it goes on
MOST = 5_000  # strikes of one drill


@dataclass(frozen=True, slots=True)
class Scene:
    """The decoder that drills are made on, and what their requests are drawn from."""

    make: Make
    setup: Setup
    seed: int
    size: int = 4  # requests that a drill serves at once

    def requests(self, greedy: bool = False) -> tuple[Request, ...]:
        """What a drill serves; greedy requests only, too, where the same seed need not give the same output."""
        claims = self.make(self.setup).claims
        greedy |= claims.seed is SeedContract.NONE
        honoured = claims.sampling - ({"temperature"} if greedy else set())
        return workload(claims.limits, honoured, Random(f"{self.seed}/chaos"))[: self.size]


Drill = Callable[[Scene], Iterator[Trial]]


def until_clean(affliction: Affliction, greedy: bool = False) -> Drill:
    """Strike at the first chance, at the second, …, until there is none left."""

    def drill(scene: Scene) -> Iterator[Trial]:
        requests = scene.requests(greedy)
        expected = undisturbed(scene.make(scene.setup), requests, affliction)
        for place in range(1, MOST):
            found = trial(lambda: scene.make(scene.setup), requests, expected, affliction, place)
            if found.fate is Fate.MISSED:
                return
            yield found
        raise NoDrill(f"there are {MOST} chances to strike, and more")

    return drill


def nan_weights(scene: Scene) -> Iterator[Trial]:
    """A row of one of the drafter's tensors is not a number, tensor by tensor: drafts may be lost, and no more."""
    if scene.setup.draft is None or not list(scene.setup.draft.glob("*.safetensors")):
        raise NoDrill("there is no drafter with weights")
    requests = scene.requests(greedy=True)
    expected = undisturbed(scene.make(scene.setup), requests, nothing)
    for file in sorted(scene.setup.draft.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            if tensor.is_floating_point() and tensor.element_size() > 1:
                with poisoned(scene.setup.draft, file, name) as draft:
                    setup = replace(scene.setup, draft=draft)
                    decoder = tried(lambda setup=setup: scene.make(setup))
                    if isinstance(decoder, Exception):
                        yield Trial(Fate.ENDED, f"{name}: {type(decoder).__name__}: {decoder}")
                        continue
                    found = trial(followed(decoder, scene), requests, expected, nothing, 1)
                    yield replace(found, detail=f"{name}: {found.detail}")


def followed(decoder: Any, scene: Scene) -> Callable[[], Any]:
    """Gives this decoder first, and behind it new ones, whose drafter is as it was."""
    first = [decoder]
    return lambda: first.pop() if first else scene.make(scene.setup)


@contextmanager
def poisoned(draft: Path, file: Path, name: str) -> Iterator[Path]:
    """A copy of a checkpoint in which the first row of one tensor is NaN."""
    with TemporaryDirectory(prefix="specqual-soak-") as folder:
        copy = Path(folder) / draft.name
        shutil.copytree(draft, copy)
        tensors = load_file(copy / file.name)
        tensors[name].view(-1, tensors[name].shape[-1])[0] = float("nan")
        save_file(tensors, copy / file.name)
        yield copy


DRILLS: dict[str, Drill] = {
    "the drafter raises": until_clean(drafting),
    "a random number cannot be had": until_clean(drawing),
    "a step raises when it is done": until_clean(stepping),
    "an allocation fails": until_clean(allocating),
    "a law of the drafter is NaN": until_clean(nan_laws, greedy=True),
    "a weight of the drafter is NaN": nan_weights,
    "the consumer is slow": until_clean(consuming),
    "the disk is full": lambda scene: full_disk(),
}


def drilled(name: str, scene: Scene, number: int = 0) -> Epoch:
    """What comes of one drill, as an epoch: the fates counted, and a violation for each that is no clear one."""
    trials, violations = list[Trial](), list[Violation]()
    try:
        for place, found in enumerate(DRILLS[name](scene), start=1):
            trials.append(found)
            if found.fate is Fate.WRONG:
                bundle = {"drill": name, "strike": place, "seed": scene.seed}
                violations.append(Violation("chaos", f"{name}, strike {place}: {found.detail}", bundle))
    except NoDrill as reason:
        return Epoch(PREFIX + name, number, Verdict.SKIPPED, "", {}, histograms={"fates": {str(reason): 0}})
    counts, fates = {"faults put in": len(trials)}, Counter(str(one.fate) for one in trials)
    verdict = Verdict.VIOLATED if violations else Verdict.EXACT if trials else Verdict.INCONCLUSIVE
    digest = sha256(repr([one.fate for one in trials]).encode()).hexdigest()
    return Epoch(
        PREFIX + name, number, verdict, digest, counts, histograms={"fates": fates}, violations=tuple(violations)
    )
