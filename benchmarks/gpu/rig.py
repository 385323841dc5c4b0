"""A target and its drafter on a device, and pools in which samples stand at a context as if served up to there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specqual.contract.checkpoint import read_draft
from specqual.contract.config import LayerType
from specqual.decoder.gpu.drafter import DeviceDrafter, load_drafter
from specqual.decoder.gpu.pools import DeviceSlots
from specqual.decoder.gpu.target import DeviceTarget, load_target
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import Pages, Stream
from specqual.decoder.schedule import LONGEST_CHUNK

from .synthetic import synthetic_draft, synthetic_target


@dataclass(frozen=True, slots=True)
class Rig:
    """What is measured; the drafter's modules as stored, or all in NVFP4."""

    target: DeviceTarget
    drafter: DeviceDrafter
    nvfp4_draft: bool

    @property
    def device(self) -> torch.device:
        return self.target.device

    @property
    def span(self) -> int:
        """Rows of one sample in a round: the anchor and its drafts."""
        return 1 + self.drafter.draft_length

    @property
    def streams(self) -> tuple[Stream, ...]:
        return (*self.target.streams, *self.drafter.streams)


def target_of(target: Path, draft: Path, device: torch.device) -> DeviceTarget:
    """Make and lay out a target's weights, module by module; its taps are those of the drafter."""
    checkpoint = synthetic_target(target, device)
    config, _ = read_draft(draft, checkpoint.config)
    return load_target(checkpoint, torch.bfloat16, config.target_layer_ids, device)


def drafter_of(draft: Path, target: DeviceTarget, *, nvfp4: bool) -> DeviceDrafter:
    """Make and lay out a drafter's weights, as its configuration stores them or all modules in NVFP4."""
    return load_drafter(synthetic_draft(draft, target.config, target.device, nvfp4=nvfp4), target)


def pools(rig: Rig, samples: int, context: int) -> Store:
    """Room for so many samples of so many tokens, and for the round that goes beyond them."""
    config = rig.target.config
    layers = tuple(index for index, kind in enumerate(config.layer_types) if kind is LayerType.LINEAR)
    slots = DeviceSlots(config.delta_net, layers, samples, rig.span, torch.bfloat16, rig.device)
    store = Store(Pages(rig.streams, 0, rig.device), slots, samples)
    most = store.most_pages(context + rig.span, max(LONGEST_CHUNK, rig.span))
    store.pages = Pages(rig.streams, samples * most, rig.device)
    return store


def place(rig: Rig, store: Store, context: int, kept: int) -> Memory:
    """A sample of `context` tokens, the last `kept` of which are in its log; keys, values and states are noise."""
    memory = store.take(store.most_pages(context + rig.span, max(LONGEST_CHUNK, rig.span)))
    if memory is None:
        raise ValueError("context: the pools have no room for another sample")
    source = torch.Generator(rig.device).manual_seed(context + len(store.open))
    for stream in rig.streams:
        table = memory.tables[stream.name]
        gone = stream.first(context) // 16  # pages that the window has passed
        table.extend([0] * gone)
        store.pages.extend(table, context, context + rig.span)
        fill(store.pages, stream, table[gone:], source)
    if memory.slot is not None and isinstance(store.slots, DeviceSlots):
        for part in (store.slots.states, *store.slots.logs):
            noise = torch.randn(part[:, memory.slot].shape, device=rig.device, generator=source)
            part[:, memory.slot] = (0.1 * noise).to(part.dtype)
        store.slots.logs.gates[:, memory.slot].abs_()
    memory.length, memory.kept = context, kept
    return memory


def fill(pages: Pages, stream: Stream, table: Sequence[int], source: torch.Generator) -> None:
    """Noise of standard deviation one in these pages of a stream."""
    cache = pages.cache(stream)
    at = torch.tensor(table, device=cache.device)
    noise = torch.randn(len(table), cache.shape[1], device=cache.device, generator=source).to(cache.dtype)
    cache.view(torch.uint8)[at] = noise.view(torch.uint8)


def features(rig: Rig, rows: int) -> Tensor:
    """What a pass of the target hands to the drafter, [rows, taps * H]."""
    width = len(rig.target.taps) * rig.target.config.hidden_size
    return torch.randn(rows, width, dtype=torch.bfloat16, device=rig.device)
