"""The pools as contract.State shows them: one sample, at its committed length."""

import torch
from torch import Tensor

from specqual.contract import State

from .deltanet import recur
from .memory import Memory, Store


def state_of(memory: Memory, store: Store) -> State:
    """What a sample owns. A recurrent state is folded to the committed length on a copy: looking changes nothing."""
    tensors, positions = dict[str, Tensor](), dict[str, tuple[int, ...]]()
    for name, stream in store.pages.streams.items() if memory.length else ():
        visible = range(stream.first(memory.length), memory.length)
        start, key, value = store.pages.read(stream, memory.tables[name], visible.start, visible.stop)
        for part, rows in (("key", key), ("value", value)):
            tensors[f"{name}.{part}"] = rows[visible.start - start : visible.stop - start].clone()
            positions[f"{name}.{part}"] = tuple(visible)
    for layer in store.slots.layers if memory.length and memory.slot is not None else ():
        state, conv, log = store.slots.load(memory.slot, layer, memory.kept)
        _, (state,) = recur(state, log.key[:0], log, len(log))
        tensors[f"target.{layer}.state"] = state.clone()
        tensors[f"target.{layer}.conv"] = torch.cat([conv, log.mixed])[len(log) :]
    pages = tuple(sorted(page for table in memory.tables.values() for page in table if page))
    return State(memory.length, tensors, positions, pages, memory.slot)
