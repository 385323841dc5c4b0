"""Seconds of a target step and of a whole round beside the bytes that must move, for batches and contexts."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specqual.decoder.gpu.budget import Pair
from specqual.decoder.memory import Store

from .arms import arms_of
from .clock import Clock, copy_bandwidth
from .moved import Cell, round_bytes, step_bytes
from .rig import Rig
from .scene import scene_of

Keep = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: runs of each arm in one timing, and how many drafts the round before has accepted."""

    arms: Sequence[str]
    batches: Sequence[int]
    contexts: Sequence[int]
    times: int
    accepted: int


def measure(rig: Rig, pair: Pair, store: Store, clock: Clock, plan: Plan, keep: Keep) -> dict[str, Any]:
    """Copies, and every cell with every arm: all runs, nothing derived that cannot be derived again.

    `keep` is told what is known so far, after every cell.
    """
    found: dict[str, Any] = {"copy": copy_bandwidth(clock), "nvfp4_draft": rig.nvfp4_draft}
    found |= {"copy_after": [], "drafts": rig.drafter.draft_length, **asdict(plan), "cells": []}
    for context in plan.contexts:
        for batch in plan.batches:
            found["cells"].append(cell_of(rig, pair, store, clock, plan, batch, context))
            keep(found)
    found["copy_after"] = copy_bandwidth(clock)
    return found


def cell_of(rig: Rig, pair: Pair, store: Store, clock: Clock, plan: Plan, batch: int, context: int) -> dict[str, Any]:
    with scene_of(rig, store, batch, context, plan.accepted) as scene:
        runs = {}
        for arm in arms_of(scene, plan.arms):
            runs[f"{arm.name} step"], runs[f"{arm.name} round"] = arm.step, arm.whole
        seconds = clock.compare(runs, plan.times)
    kept = plan.accepted + 1
    return {
        "batch": batch,
        "context": context,
        "seconds": seconds,
        "step_bytes": step_bytes(pair, Cell(batch, context, 1, 1)),
        "round_bytes": round_bytes(pair, Cell(batch, context, rig.span, kept), rig.nvfp4_draft),
    }
