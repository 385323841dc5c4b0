"""The ways in which the same work can be launched."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specqual.contract import Proposal
from specqual.decoder.counts import Counts
from specqual.decoder.gpu.graphs import Graphs
from specqual.decoder.gpu.turn import Seat, Turn
from specqual.decoder.gpu.walks import Way

from .rig import Rig
from .scene import Scene, draft, ingest, passed, step, whole

GRAPHS = 8  # of an arm: a step, and the passes of a round
Work = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """`step` is the target alone, `whole` a round, `parts` what a round consists of, in its order."""

    name: str
    step: Work
    whole: Work
    parts: Mapping[str, Work]


def eager(scene: Scene) -> Arm:
    """Launched one by one from the host."""
    drafts = [Proposal.certain((1,) * scene.rig.drafter.draft_length)] * scene.batch  # which ones costs nothing
    parts = {
        "ingest": lambda: ingest(scene),
        "draft": lambda: draft(scene),
        "target": lambda: passed(scene, scene.memories, drafts),
    }
    return Arm("eager", lambda: step(scene), lambda: whole(scene), parts)


def captured(scene: Scene) -> Arm:
    """Every pass a graph of its own, recorded when it is run first."""
    rig, passes = scene.rig, Graphs(scene.rig.device, scene.store, Counts(), GRAPHS)
    target = replace(rig.target, passes=passes)
    drafter = replace(rig.drafter, target=target)
    return replace(eager(replace(scene, rig=replace(rig, target=target, drafter=drafter))), name="graphs")


def whole_rounds(scene: Scene) -> Arm:
    """A step and a round as one graph each, told the same again each time: drafts and verdicts never leave the device.

    Without the host, that is, and without the copies to it and back.
    """
    target, drafter = scene.rig.target, scene.rig.drafter
    seats = [Seat(memory, 1 + place) for place, memory in enumerate(scene.alone)]
    drafting = [Seat(memory, 1 + place, drafter.draft_length) for place, memory in enumerate(scene.memories)]
    way = Way.SELECTOR if drafter.codes is not None else Way.LIKELIEST
    step = Turn(target, None, scene.store).standing(seats)
    return Arm("whole rounds", step, Turn(target, drafter, scene.store).standing(drafting, way), {})


ARMS: dict[str, Callable[[Scene], Arm]] = {"eager": eager, "graphs": captured, "whole rounds": whole_rounds}


def arms_of(scene: Scene, names: Sequence[str]) -> list[Arm]:
    """Those of these names."""
    return [ARMS[name](scene) for name in names]


def plain(rig: Rig) -> Rig:
    """The same with a drafter that has neither selector nor convolutions: what a round costs without them."""
    drafter = rig.drafter
    config = replace(drafter.config, selector=None, convolution=None)
    return replace(rig, drafter=replace(drafter, config=config, selector=None, codes=None))
