"""The pools as contract.State shows them: one sample, at its committed length."""

from torch import Tensor

from specqual.contract import State

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
        state, history = store.slots.folded(memory.slot, layer, memory.length, memory.kept)
        tensors[f"target.{layer}.state"], tensors[f"target.{layer}.conv"] = state, history
    pages = tuple(sorted(page for stream in store.pages.own for page in memory.tables[stream.name] if page))
    return State(memory.length, tensors, positions, pages, memory.slot, PAGE)
