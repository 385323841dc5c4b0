"""The pools as contract.State shows them: one sample, at its committed length."""

import torch
from torch import Tensor

from specqual.contract import State

from .deltanet import step
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
    for layer in store.slots.layers if memory.length else ():
        states, (conv,), logs = store.slots.load(torch.tensor([memory.slot]), layer)
        for token in range(memory.kept):
            states = step(states, *(side[:, token] for side in (logs.key, logs.value, logs.decay, logs.beta)))
        tensors[f"target.{layer}.state"] = states[0].clone()
        tensors[f"target.{layer}.conv"] = torch.cat([conv, logs.mixed[0, : memory.kept]])[memory.kept :]
    pages = tuple(sorted(page for table in memory.tables.values() for page in table if page))
    return State(memory.length, tensors, positions, pages, memory.slot)
