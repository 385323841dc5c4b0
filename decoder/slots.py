"""The recurrent pool: for each slot the state at a committed length, and a replay log of the span behind it.

A verify pass never advances a slot by what it has not yet been told to keep. The next pass runs one loop over the kept
part of the log and its own new tokens, and stores the state at the boundary between the two.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specqual.contract.config import DeltaNet

from .arithmetic import wide_dtype
from .deltanet import Inputs, advance, steps_of
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
        self._net, wide = net, wide_dtype(dtype)
        self._state = torch.zeros(len(layers), count, net.value_heads, net.key_dim, net.value_dim, dtype=wide)
        self._conv = torch.zeros(len(layers), count, net.kernel - 1, net.channels, dtype=dtype)
        self._logs = torch.zeros(len(layers), count * longest, sum(Inputs.widths(net)), dtype=wide)

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
        self._state[:, slot] = 0
        self._conv[:, slot] = 0
        return slot

    def give(self, slot: int | None) -> None:
        if slot is not None:
            self._free.append(slot)

    def copy(self, source: int, slot: int) -> None:
        """Put what one slot holds, its log too, into another."""
        logs = self._logs.view(len(self._logs), self.count, self.longest, -1)
        for part in (self._state, self._conv, logs):
            part[:, slot] = part[:, source]

    def load(self, layer: int, replay: Replay) -> tuple[Tensor, Tensor, Tensor]:
        """States [B, heads, key_dim, value_dim] and histories [B (kernel - 1), channels] at the boundaries of a pass's
        samples, and the kept rows of all their logs, as in Inputs; all of it copied."""
        place = self.layers[layer]
        states, histories = (pool[place].index_select(0, replay.slots) for pool in (self._state, self._conv))
        return states, histories.flatten(0, 1), self._logs[place].index_select(0, replay.kept)

    def keep(self, layer: int, slots: Tensor, states: Tensor) -> None:
        """Move slots to new boundaries, whose states these are."""
        self._state[self.layers[layer]].index_copy_(0, slots, states)

    def store(self, layer: int, histories: Tensor, new: Tensor, replay: Replay) -> None:
        """Keep the histories [stops, kernel - 1, channels] at new boundaries, and of the new rows [R, ...] those behind
        them, which may yet be rejected."""
        place, (rows, at) = self.layers[layer], replay.logged
        self._conv[place].index_copy_(0, replay.stop_slots, histories.to(self._conv.dtype))
        if len(rows):
            self._logs[place].index_copy_(0, at, new.index_select(0, rows))

    def folded(self, slot: int, layer: int, length: int, kept: int) -> tuple[Tensor, Tensor]:
        """One slot's state and history as they will be at its length, `kept` tokens behind its boundary: folded with
        the arithmetic of a pass, on copies."""
        place, log = self.layers[layer], self._logs[self.layers[layer], slot * self.longest :][:kept]
        state, rows = self._state[place, slot].clone(), Inputs.of(log.clone()[:, None], self._net)
        for step in steps_of(rows):
            advance(state, *step)
        conv = self._conv[place, slot]
        return state, torch.cat([conv, rows.mixed[:, 0].to(conv.dtype)])[kept:]
