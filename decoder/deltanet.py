"""The gated delta-net, one token at a time: the recurrence, and the causal convolution in front of it.

The samples of a batch stand side by side as one batch of equal matrices, one per sample and head: what happens to one
does not depend on how many there are (`tests/test_decoder_shapes.py` looks at it).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specqual.contract.config import DeltaNet

from .replay import Replay


@dataclass(frozen=True, slots=True)
class Inputs:
    """Exactly what the recurrence consumes, token by token, after every rounding; and what the convolution consumed.

    `mixed` [..., channels]; `key` [..., heads, key_dim]; `value` [..., heads, value_dim]; `decay`, `beta` [..., heads].
    """

    mixed: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor

    @staticmethod
    def widths(net: DeltaNet) -> tuple[int, ...]:
        """Of the fields, as they stand behind each other in a row."""
        heads = net.value_heads
        return net.channels, heads * net.key_dim, heads * net.value_dim, heads, heads

    def rows(self) -> Tensor:
        """All of it as rows [R, sum of widths], wide."""
        return torch.cat([self.mixed, self.key.flatten(1), self.value.flatten(1), self.decay, self.beta], dim=1)

    @classmethod
    def of(cls, rows: Tensor, net: DeltaNet) -> "Inputs":
        """Rows [..., sum of widths] taken apart."""
        mixed, key, value, decay, beta = torch.split(rows, list(cls.widths(net)), dim=-1)
        heads = (net.value_heads, -1)
        return cls(mixed, torch.unflatten(key, -1, heads), torch.unflatten(value, -1, heads), decay, beta)


Steps = tuple[tuple[Tensor, ...], ...]
"""For each token t, decay [n, 1, 1], key as a row [n, 1, key_dim], beta key as a column [n, key_dim, 1], and value
[n, 1, value_dim], of all n heads of all samples."""


def steps_of(inputs: Inputs) -> Steps:
    """The steps of inputs [T, samples, ...]."""
    key, value = inputs.key.flatten(1, 2), inputs.value.flatten(1, 2)
    decay, beta = inputs.decay.flatten(1)[..., None], inputs.beta.flatten(1)[..., None]
    parts = (decay[..., None], key[:, :, None], (beta * key)[..., None], value[:, :, None])
    return tuple(zip(*(part.unbind(0) for part in parts), strict=True))


def advance(state: Tensor, decay: Tensor, key: Tensor, written: Tensor, value: Tensor) -> None:
    """One token of n heads, in place: states [n, key_dim, value_dim] forget by decay, then beta (value - what key
    reads) is written at key."""
    state.mul_(decay)
    state.addcmul_(written, torch.baddbmm(value, key, state, alpha=-1))


Store = Callable[[Tensor, Tensor], None]
"""Takes slots [n] and the states [n, heads, key_dim, value_dim] to keep there."""


def recur(states: Tensor, query: Tensor, inputs: Tensor, net: DeltaNet, replay: Replay, store: Store) -> Tensor:
    """One loop over the tokens of all samples: outputs [R, heads, value_dim] of the new rows.

    `states` [B, heads, key_dim, value_dim] stand at the boundary in front of the kept logs, and are used up; `inputs`
    are the rows of the kept logs and then the R new ones; `query` [R, heads, key_dim]. `store` is given the states
    behind each stop. Fold and verify are this one loop, so both round alike.
    """
    heads, state = net.value_heads, states.flatten(0, 1)
    steps = steps_of(Inputs.of(inputs[replay.tokens], net))
    asked = query[replay.asked].flatten(1, 2)[:, :, None].unbind(0)  # [B heads, 1, key_dim] for each token that speaks
    outputs = states.new_empty(len(asked), len(state), 1, net.value_dim)
    spoken = list(zip(asked, outputs.unbind(0), strict=True))
    silent = len(steps) - len(asked)

    def stop(token: int) -> None:
        if token in replay.stops:
            ranks, slots = replay.stops[token]
            store(slots, states if ranks is None else states[ranks])

    for token, step in enumerate(steps):
        stop(token)
        running = replay.running[token] * heads
        if running < step[0].shape[0]:
            state, step = state[:running], tuple(part[:running] for part in step)
        advance(state, *step)
        if token >= silent:
            ask, said = spoken[token - silent]
            if running < len(said):
                ask, said = ask[:running], said[:running]
            torch.bmm(ask, state, out=said)
    stop(len(steps))
    return outputs.view(-1, heads, net.value_dim)[replay.outputs]


def convolve(rows: Tensor, taps: Tensor) -> Tensor:
    """Causal depthwise convolution: rows [R, kernel, channels], each with its history, oldest first, and taps
    [kernel, channels] to [R, channels]."""
    return (rows * taps).sum(1)
