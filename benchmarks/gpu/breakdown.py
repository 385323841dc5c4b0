"""Where the time of a round goes: its parts, the kernels within each part, and what selector and convolutions add."""

from dataclasses import replace
from typing import Any

import torch

from specqual.decoder.memory import Store

from .arms import Work, arms_of, plain
from .clock import Clock
from .rig import Rig
from .scene import scene_of
from .speed import Plan

RUNS = 3  # of a part under the profiler


def measure(rig: Rig, store: Store, clock: Clock, plan: Plan, batch: int, context: int) -> dict[str, Any]:
    """Every arm's parts by the clock and by kernel, at one batch and context."""
    found, times = dict[str, Any](), plan.times
    with scene_of(rig, store, batch, context, plan.accepted) as scene:
        bare = replace(scene, rig=plain(rig))
        for arm, less in zip(*(arms_of(one, plan.arms) for one in (scene, bare)), strict=True):
            rounds = {"round": arm.whole, "round, plain drafter": less.whole}
            works = {**arm.parts, "step": arm.step, "round": arm.whole}
            found[arm.name] = {
                "parts": clock.compare(arm.parts, times),  # none of those that are one graph
                "rounds": clock.compare(rounds, times),
                "kernels": {name: kernels(work) for name, work in works.items()},
            }
    return {
        "batch": batch,
        "context": context,
        "nvfp4_draft": rig.nvfp4_draft,
        "accepted": plan.accepted,
        "arms": found,
    }


def kernels(work: Work) -> dict[str, Any]:
    """Launches and seconds of each kernel in one run, as CUPTI tells them; nothing where it does not."""
    if not torch.cuda.is_available():
        return {}
    from torch.profiler import ProfilerActivity, profile

    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(RUNS):
            work()
        torch.cuda.synchronize()
    return {
        event.key: {"launches": event.count / RUNS, "seconds": event.self_device_time_total / 1e6 / RUNS}
        for event in seen.key_averages()
        if event.self_device_time_total > 0
    }
