"""The recurrent pool: for each slot the state at a committed length, and a replay log of the span behind it.

A verify pass never advances a slot by what it has not yet been told to keep. The next pass runs one loop over the kept
part of the log and its own new tokens, and stores the state at the boundary between the two.
"""

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from specqual.contract.config import DeltaNet

from .arithmetic import wide_dtype
from .deltanet import Inputs
from .replay import Replay


class Slots:
    """`count` slots for the delta-net layers `layers`, with logs of at most `longest` tokens."""

    def __init__(
        self, net: DeltaNet | None, layers: Sequence[int], count: int, longest: int, dtype: torch.dtype
    ) -> None:
        self._made = (net, tuple(layers), longest, dtype)
        self.longest = longest
        self.layers = {layer: place for place, layer in enumerate(layers)}
        self.count = count if layers else 0
        self._free = list(range(self.count - 1, -1, -1))
        if net is None:
            return
        wide, shape = wide_dtype(dtype), (count, len(layers))
        self._state = torch.zeros(*shape, net.value_heads, net.key_dim, net.value_dim, dtype=wide)
        self._conv = torch.zeros(*shape, net.kernel - 1, net.channels, dtype=dtype)
        self._logs = (
            torch.zeros(*shape, longest, net.channels, dtype=dtype),
            torch.zeros(*shape, longest, net.value_heads, net.key_dim, dtype=wide),
            torch.zeros(*shape, longest, net.value_heads, net.value_dim, dtype=wide),
            torch.zeros(*shape, longest, net.value_heads, dtype=wide),
            torch.zeros(*shape, longest, net.value_heads, dtype=wide),
        )

    def like(self, count: int) -> "Slots":
        """An empty pool of the same kind."""
        net, layers, longest, dtype = self._made
        return Slots(net, layers, count, longest, dtype)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        """A slot with an empty state, or None where the target has no recurrent layer."""
        if not self.layers:
            return None
        slot = self._free.pop()
        self._state[slot] = 0
        self._conv[slot] = 0
        return slot

    def give(self, slot: int | None) -> None:
        if slot is not None:
            self._free.append(slot)

    def copy(self, source: int, slot: int) -> None:
        """Put what one slot holds, its log too, into another."""
        for part in (self._state, self._conv, *self._logs):
            part[slot] = part[source]

    def load(self, slots: Tensor, layer: int) -> tuple[Tensor, Tensor, Inputs]:
        """States and histories at the boundary, and the whole logs behind it, of several slots [B]: each [B, ...]."""
        at = (slots, self.layers[layer])
        return self._state[at], self._conv[at], Inputs(*(log[at] for log in self._logs))

    def store(self, layer: int, states: Tensor, convs: Tensor, new: Inputs, replay: Replay) -> None:
        """Keep states and histories at new boundaries, and the tokens behind them, which may yet be rejected."""
        place, (rows, slots, at) = self.layers[layer], replay.logged
        self._state[replay.stop_slots, place] = states
        self._conv[replay.stop_slots, place] = convs
        for log, field in zip(self._logs, fields(Inputs), strict=True):
            log[slots, place, at] = getattr(new, field.name)[rows]
