"""The recurrent pool on the device: states, and logs whose rows lie at their positions modulo the length of a ring."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specqual.contract.config import DeltaNet

from ..deltanet import Inputs
from ..slots import Slots
from .spans import Log


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

    def at(self, slot: int, layer: int, length: int, kept: int) -> tuple[Tensor, Tensor, Inputs]:
        states, log = self.of(layer)
        boundary, history = length - kept, self._net.kernel - 1
        group = self._net.value_heads // self._net.key_heads
        state = states[slot].cpu().clone() if boundary else torch.zeros_like(states[slot], device="cpu")
        before = torch.arange(boundary - history, boundary)
        mixed, key, value, gates = (side[slot].cpu() for side in log)
        conv = mixed[before % len(mixed)].masked_fill((before < 0)[:, None], 0.0)
        tokens = torch.arange(boundary, length)
        at = tokens % len(key)
        decay, beta = gates[at].unbind(1)
        rows = (mixed[tokens % len(mixed)].float(), key[at].float().repeat_interleave(group, 1), value[at].float())
        return state, conv, Inputs(*(side[:, None] for side in (*rows, decay, beta)))
