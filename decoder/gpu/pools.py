"""The recurrent pool on the device: states, and logs whose rows lie at their positions modulo the length of a ring."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specqual.contract.config import DeltaNet

from ..slots import Slots
from .recurrence import Consumed, recurrence
from .spans import Ledger, Log, Spans


class DeviceSlots(Slots):
    """The same pool for the kernels here. Nothing is cleared: a state at boundary 0 is never read."""

    def __init__(
        self,
        net: DeltaNet | None,
        layers: Sequence[int],
        count: int,
        longest: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(None, layers, count, longest, dtype)
        self._made, self._device = (net, tuple(layers), longest, dtype), device
        if net is None:
            return
        self._net, places, ring = net, len(layers), 2 * longest

        def room(*shape: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.zeros(places, count, *shape, dtype=kind, device=device)

        self.states = room(net.value_heads, net.key_dim, net.value_dim, kind=torch.float32)
        self.logs = Log(
            room(longest + net.kernel - 1, net.channels),
            room(ring, net.key_heads, net.key_dim),
            room(ring, net.value_heads, net.value_dim),
            room(ring, 2, net.value_heads, kind=torch.float32),
        )

    def like(self, count: int) -> "DeviceSlots":
        return DeviceSlots(*self._made[:2], count, *self._made[2:], self._device)

    def of(self, layer: int) -> tuple[Tensor, Log]:
        """States [slots, heads, key_dim, value_dim] and logs of one layer."""
        place = self.layers[layer]
        return self.states[place], Log(*(side[place] for side in self.logs))

    def take(self) -> int | None:
        return self._free.pop() if self.layers else None

    def copy(self, source: int, slot: int) -> None:
        for part in (self.states, *self.logs):
            part[:, slot] = part[:, source]

    def folded(self, slot: int, layer: int, length: int, kept: int) -> tuple[Tensor, Tensor]:
        states, log = self.of(layer)
        boundary, history = length - kept, self._net.kernel - 1
        state = states[slot : slot + 1].clone() if boundary else torch.zeros_like(states[:1])
        if kept:  # the log once more, as the tokens of a span of which all stay
            at = torch.arange(boundary, length, device=self._device) % log.key.shape[1]
            key, value, gates = (side[slot, at] for side in log[1:])
            spans, ledger = Spans(*self._told([0, kept], [boundary])), Ledger(*self._told([0], [boundary], [kept]))
            recurrence(state, spans, ledger, log, Consumed(key, key, value, gates))
        before = torch.arange(length - history, length, device=self._device)
        conv = log.mixed[slot, before % log.mixed.shape[1]].masked_fill((before < 0)[:, None], 0.0)
        return state[0].cpu(), conv.cpu()

    def _told(self, *counts: list[int]) -> Iterator[Tensor]:
        return (torch.tensor(side, dtype=torch.int32, device=self._device) for side in counts)
