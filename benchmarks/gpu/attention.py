"""Attention of all layers, the target's and the drafter's, by every back end that can run here, side by side.

Each is one graph, so what launches cost the host is left out; layers take turns, so what one has read is not in a cache
when it is asked again, unless what all of them read fits: the windows of the 27B target's drafter are 42 MB a sample,
and an H200 keeps 60. Libraries read no pages: what gathering costs them belongs to them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specqual.decoder.gpu.attention_backends import BACK_ENDS, Attention, present
from specqual.decoder.gpu.graphs import Recorder
from specqual.decoder.gpu.spans import Spans
from specqual.decoder.memory import Store
from specqual.decoder.pages import Stream

from .clock import Clock
from .rig import Rig
from .scene import Scene, scene_of


@dataclass(frozen=True, slots=True)
class Pass:
    """What is asked of each of these layers: `rows` of every sample, with `heads` heads."""

    name: str
    streams: Sequence[Stream]
    heads: int
    rows: int
    causal: bool = True
    block: bool = False  # rows see each other's keys and values, which nobody keeps


def passes(rig: Rig) -> tuple[Pass, ...]:
    target, draft = rig.target, rig.drafter
    heads, rows = target.config.heads, rig.span
    return (
        Pass("target, a step", target.streams, heads, 1),
        Pass("target, a round", target.streams, heads, rows),
        Pass("drafter, a block", draft.streams, draft.config.heads, rows, draft.config.is_causal, True),
    )


def measure(
    rig: Rig, store: Store, clock: Clock, batches: Sequence[int], context: int, times: int
) -> Iterator[dict[str, Any]]:
    """Seconds of all layers by back end, for every batch and pass."""
    for batch in batches:
        with scene_of(rig, store, batch, context, 0) as scene:
            for one in passes(rig):
                yield cell_of(scene, one, clock, times)


def cell_of(scene: Scene, one: Pass, clock: Clock, times: int) -> dict[str, Any]:
    """The same of one pass; graphs, and what they read, go with its end."""
    recorder, works = Recorder(scene.rig.device), dict(bodies(scene, one))  # what they hold no graph keeps
    records = {name: recorder.record(body) for name, body in works.items()}
    return {
        "name": one.name,
        "layers": len(one.streams),
        "batch": scene.batch,
        "context": scene.context,
        "seconds": clock.compare({name: record.again for name, record in records.items()}, times),
    }


def bodies(scene: Scene, one: Pass) -> Iterator[tuple[str, Callable[[], tuple[Tensor, ...]]]]:
    """By back end, the attention of all layers of a pass over noise."""
    device, rows = scene.rig.device, scene.batch * one.rows
    spans = Spans(
        torch.arange(scene.batch + 1, dtype=torch.int32, device=device) * one.rows,
        torch.full((scene.batch,), scene.context, dtype=torch.int32, device=device),
    )
    kv_heads, depth = one.streams[0].kv_heads, one.streams[0].head_dim  # of every layer

    def noise(heads: int) -> Tensor:
        return torch.randn(rows, heads, depth, dtype=torch.bfloat16, device=device)

    query, sides = noise(one.heads), (noise(kv_heads), noise(kv_heads)) if one.block else None
    layers = [
        {
            "cache": scene.store.pages.cache(stream),
            "table": torch.tensor(
                [list(memory.tables[stream.name]) for memory in scene.memories], dtype=torch.int32
            ).to(device),
            "scales": stream.scales or (1.0, 1.0),
            "window": stream.window,
        }
        for stream in one.streams
    ]

    def all_layers(attention: Attention) -> tuple[Tensor, ...]:
        return tuple(
            attention(query, spans=spans, most=one.rows, kv_heads=kv_heads, causal=one.causal, own=sides, **layer)
            for layer in layers
        )

    for name in present(device, torch.bfloat16):
        yield name, partial(all_layers, BACK_ENDS[name])
