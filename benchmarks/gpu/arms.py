"""The ways in which the same work can be launched."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specqual.contract import Proposal

from .rig import Rig
from .scene import Scene, draft, ingest, passed, step, whole

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
        "target": lambda: passed(scene, drafts),
    }
    return Arm("eager", lambda: step(scene), lambda: whole(scene), parts)


def arms_of(scene: Scene) -> list[Arm]:
    """All that there are."""
    return [eager(scene)]


def plain(rig: Rig) -> Rig:
    """The same with a drafter that has neither selector nor convolutions: what a round costs without them."""
    drafter = rig.drafter
    config = replace(drafter.config, selector=None, convolution=None)
    return replace(rig, drafter=replace(drafter, config=config, selector=None))
