"""Where the time of a round goes: its parts, the kernels within each part, and what selector and convolutions add."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from specqual.decoder.memory import Store

from .arms import Work, arms_of, plain
from .clock import Clock
from .rig import Rig
from .scene import clear, scene_of

RUNS = 3  # of a part under the profiler
GROUPS = {
    "linear": ("fp8_kernel", "nvfp4_kernel", "dense_kernel", "rows_kernel", "block_kernel", "quantise_kernel"),
    "attention": ("attention_kernel", "gather_kernel", "heads_kernel"),
    "recurrence": ("recurrence_kernel", "convolution_kernel", "head_kernel", "gated_norm_kernel"),
    "selector and block convolution": ("selector_kernel", "groups_kernel", "pick_kernel", "block_convolution_kernel"),
    "judging": ("argmax_kernel", "matched_kernel", "judge_kernel", "law_kernel", "draw_kernel"),
    "norms, gates, embedding": ("norm_kernel", "gated_kernel", "embedding_kernel"),
    "copies": ("Memcpy", "Memset"),
}
"""Kernels by parts of their names; the first group that fits, read from the longest name to the shortest."""


def measure(
    rig: Rig, store: Store, clock: Clock, batch: int, context: int, times: int, accepted: int
) -> dict[str, Any]:
    """Every arm's parts by the clock and by kernel, at one batch and context."""
    found = dict[str, Any]()
    scene = scene_of(rig, store, batch, context, accepted)
    for arm, bare in zip(arms_of(scene), arms_of(replace(scene, rig=plain(rig))), strict=True):
        rounds = {"round": arm.whole, "round without selector and convolutions": bare.whole}
        found[arm.name] = {
            "parts": clock.compare(arm.parts, times),
            "rounds": clock.compare(rounds, times),
            "kernels": {name: kernels(work) for name, work in arm.parts.items()},
        }
    clear(scene)
    return {"batch": batch, "context": context, "nvfp4_draft": rig.nvfp4_draft, "accepted": accepted, "arms": found}


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


def grouped(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Seconds by group; what no group knows is "other"."""
    sums = dict.fromkeys((*GROUPS, "other"), 0.0)
    for name, told in found.items():
        sums[group_of(name)] += told["seconds"]
    return {name: seconds for name, seconds in sums.items() if seconds}


def group_of(kernel: str) -> str:
    """The group with the longest part of a name that fits: block_convolution_kernel is no convolution_kernel."""
    fits = [(len(part), group) for group, parts in GROUPS.items() for part in parts if part in kernel]
    return max(fits)[1] if fits else "other"
