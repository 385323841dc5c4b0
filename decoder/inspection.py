"""The pools as contract.State shows them: one sample, at its committed length."""

import torch
from torch import Tensor

from specqual.contract import State

from .deltanet import advance, steps_of
from .memory import Memory, Store
from .pages import PAGE


def state_of(memory: Memory, store: Store) -> State:
    """What a sample owns. A recurrent state is folded to the committed length on a copy: looking changes nothing."""
    tensors, positions = dict[str, Tensor](), dict[str, tuple[int, ...]]()
    for name, stream in store.pages.streams.items() if memory.length else ():
        visible = range(stream.first(memory.length), memory.length)
        key, value = store.pages.read(stream, memory.tables[name], visible.start, visible.stop)
        for part, rows in (("key", key), ("value", value)):
            tensors[f"{name}.{part}"] = rows.cpu().clone()
            positions[f"{name}.{part}"] = tuple(visible)
    for layer in store.slots.layers if memory.length else ():
        assert memory.slot is not None
        state, conv, log = store.slots.at(memory.slot, layer, memory.length, memory.kept)
        for step in steps_of(log):
            advance(state, *step)
        tensors[f"target.{layer}.state"] = state
        tensors[f"target.{layer}.conv"] = torch.cat([conv, log.mixed[:, 0].to(conv.dtype)])[memory.kept :]
    pages = tuple(sorted(page for stream in store.pages.own for page in memory.tables[stream.name] if page))
    return State(memory.length, tensors, positions, pages, memory.slot, PAGE)
