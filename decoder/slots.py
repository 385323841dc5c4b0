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


class Slots:
    """`count` slots for the delta-net layers `layers`, with logs of at most `longest` tokens."""

    def __init__(
        self, net: DeltaNet | None, layers: Sequence[int], count: int, longest: int, dtype: torch.dtype
    ) -> None:
        self._made = (net, tuple(layers), longest, dtype)
        self.layers = {layer: place for place, layer in enumerate(layers)}
        self.count = count if layers else 0
        self._free = list(range(self.count - 1, -1, -1))
        if net is None:
            return
        wide, shape = wide_dtype(dtype), (count, len(layers))
        self._state = torch.zeros(*shape, net.value_heads, net.key_dim, net.value_dim, dtype=wide)
        self._conv = torch.zeros(*shape, net.kernel - 1, net.channels, dtype=dtype)
        self._log = Inputs(
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
        """Put what one slot holds at its boundary into another; logs are not copied."""
        self._state[slot] = self._state[source]
        self._conv[slot] = self._conv[source]

    def load(self, slot: int | None, layer: int, kept: int) -> tuple[Tensor, Tensor, Inputs]:
        """The state and the convolution's history at the boundary, and the first `kept` tokens logged behind it."""
        at = self._place(slot, layer)
        log = Inputs(*(getattr(self._log, field.name)[at][:kept] for field in fields(Inputs)))
        return self._state[at], self._conv[at], log

    def store(self, slot: int | None, layer: int, state: Tensor, conv: Tensor, log: Inputs) -> None:
        """Keep the state and the history at a new boundary, and the tokens behind it, which may yet be rejected."""
        at = self._place(slot, layer)
        self._state[at] = state
        self._conv[at] = conv
        for field in fields(Inputs):
            getattr(self._log, field.name)[at][: len(log)] = getattr(log, field.name)

    def _place(self, slot: int | None, layer: int) -> tuple[int, int]:
        assert slot is not None  # everybody has one where there is a recurrent layer to ask for
        return slot, self.layers[layer]
