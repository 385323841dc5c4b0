"""What is held on the device, beside what `specqual plan` says: line by line, and at its peak."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from specqual.decoder.gpu.budget import Load, Pair, budget
from specqual.decoder.span import Span

from .arms import arms_of
from .clock import Clock
from .rig import Rig, pools
from .scene import Scene, scene_of

GIB = 2**30
ASKED = 29.21  # GiB, the peak that a public report of the same shape names
LINES = {  # of this report: the lines of the plan that belong to it, by how they begin
    "weights of the target": ("target: bfloat16 modules", "target: fp8", "target: nvfp4", "target: tables"),
    "weights of the drafter": ("drafter: bfloat16 modules", "drafter: fp8", "drafter: nvfp4", "drafter: tables"),
    "rotary tables": ("rotary",),
    "keys and values": ("target: FP8 keys", "target: bfloat16 keys", "drafter: bfloat16 keys"),
    "states and logs": ("recurrent states", "replay logs"),
    "buffers at their peak": ("tapped features", "activations", "page tables", "workspaces", "logits"),
    "held by the allocator beyond that": ("captured graphs: a round", "captured graphs: features"),
    "CUDA, its kernels and graphs": ("CUDA", "captured graphs: CUDA"),
}


def measure(rig: Rig, pair: Pair, clock: Clock, samples: int, context: int, chunk: int) -> dict[str, Any]:
    """Fill the pools, take in a chunk of prompt for every sample at once, run steps and rounds, and look."""
    store = pools(rig, samples, context)
    held = {
        "weights of the target": size_of(without(rig.target, "turns")),
        "weights of the drafter": size_of(without(rig.drafter, "turns", "target")),
        "rotary tables": size_of([rig.target.turns, rig.drafter.turns]),
        "keys and values": store.pages.cache(rig.streams[0]).untyped_storage().nbytes(),
        "states and logs": size_of(vars(store.slots).get(name) for name in ("states", "logs")),
    }
    with scene_of(rig, store, samples, context - chunk, 0) as scene:
        prefill(scene, chunk)
    with scene_of(rig, store, samples, context, pair.span // 2 - 1) as scene:
        for arm in arms_of(scene, ["graphs", "whole rounds"]):
            for work in (arm.step, arm.whole):
                for _ in range(clock.warm + 1):
                    work()
    if rig.device.type == "cuda":
        torch.cuda.synchronize()
        free, there = torch.cuda.mem_get_info()
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        used = there - free
        held["buffers at their peak"] = peak - sum(held.values())
        held["held by the allocator beyond that"] = reserved - peak
        held["CUDA, its kernels and graphs"] = used - torch.cuda.memory_reserved()
    else:
        peak = reserved = used = 0
    plan = budget(pair, Load(samples, context, rig.nvfp4_draft))
    return {
        "samples": samples,
        "context": context,
        "nvfp4_draft": rig.nvfp4_draft,
        "peak_allocated": peak,
        "peak_reserved": reserved,
        "device_used": used,
        "asked": int(ASKED * GIB),
        "held": held,
        "planned": {
            line: sum(item.bytes for item in plan if item.name.startswith(begins)) for line, begins in LINES.items()
        },
        "plan": {item.name: item.bytes for item in plan},
    }


def prefill(scene: Scene, chunk: int) -> None:
    """The widest pass that there is: a chunk of prompt for every sample."""
    spans = list[Span]()
    for memory in scene.memories:
        memory.kept = 0
        ids = (0,) * (scene.context + chunk)
        scene.store.extend(memory, scene.rig.streams, len(ids))
        spans.append(Span(ids, scene.context, memory, chunk, 0))
    found = scene.rig.target.forward(spans, scene.store)
    starts = [scene.context] * scene.batch
    scene.rig.drafter.ingest(scene.memories, starts, found.features, scene.store)


def size_of(what: Any) -> int:
    """Bytes of the distinct tensors in nested dataclasses, tuples and mappings."""
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors_in(what)}
    return sum(storages.values())


def without(what: Any, *names: str) -> list[Any]:
    """The other fields of a dataclass."""
    return [getattr(what, field.name) for field in fields(what) if field.name not in names]


def tensors_in(what: Any) -> Iterator[Tensor]:
    if isinstance(what, Tensor):
        yield what
    elif is_dataclass(what) and not isinstance(what, type):
        yield from tensors_in([getattr(what, field.name) for field in fields(what)])
    elif isinstance(what, Mapping):
        yield from tensors_in(list(what.values()))
    elif isinstance(what, Sequence | Iterator) and not isinstance(what, str | bytes):
        for one in what:
            yield from tensors_in(one)
