"""The gated delta-net, one token at a time: the recurrence, and the causal convolution in front of it."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Inputs:
    """Exactly what the recurrence consumes, token by token, after every rounding; and what the convolution consumed.

    `mixed` [T, channels]; `key` [T, heads, key_dim]; `value` [T, heads, value_dim]; `decay`, `beta` [T, heads].
    """

    mixed: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor

    def __len__(self) -> int:
        return len(self.mixed)

    def cut(self, start: int, end: int) -> "Inputs":
        return Inputs(*(getattr(self, name)[start:end] for name in self.__slots__))

    def followed_by(self, other: "Inputs") -> "Inputs":
        return Inputs(*(torch.cat([getattr(self, name), getattr(other, name)]) for name in self.__slots__))


def step(state: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """One token: the state [heads, key_dim, value_dim] forgets by decay, then writes beta (value - what key reads).

    key [heads, key_dim, 1], value [heads, value_dim], decay [heads, 1, 1], beta [heads, 1]. Products and sums are
    separate calls: contracted to one rounding, or left to a matrix product that looks at how its operands are aligned,
    the same token could have two results.
    """
    state = state * decay
    write = beta * (value - (key * state).sum(1))
    return state + key * write[:, None]


def recur(state: Tensor, query: Tensor, inputs: Inputs, *boundaries: int) -> tuple[Tensor, list[Tensor]]:
    """One loop over T tokens: outputs [n, heads, value_dim], and the state behind the first so many tokens, for each
    of the boundaries.

    `query` [n, heads, key_dim] are those of the last n tokens: the ones before are a replay, whose outputs were handed
    out when they were new. Fold and verify are this one loop, so both round alike.
    """
    states, outputs, start = {0: state}, list[Tensor](), len(inputs) - len(query)
    tokens = zip(
        inputs.key[..., None].unbind(),
        inputs.value.unbind(),
        inputs.decay[..., None, None].unbind(),
        inputs.beta[..., None].unbind(),
        strict=True,
    )
    queries = query[..., None].unbind()
    for place, token in enumerate(tokens):
        state = step(state, *token)
        if place + 1 in boundaries:
            states[place + 1] = state
        if place >= start:
            outputs.append((queries[place - start] * state).sum(1))
    seen = torch.stack(outputs) if outputs else query.new_zeros(0, *inputs.value.shape[1:])
    return seen, [states[boundary] for boundary in boundaries]


def convolve(history: Tensor, rows: Tensor, taps: Tensor) -> Tensor:
    """Causal depthwise convolution of rows [T, channels] behind history [kernel - 1, channels] with [channels, kernel].

    The last tap meets the current row. Taps are added from the oldest row on.
    """
    everything = torch.cat([history, rows]).to(taps.dtype)
    total = everything[: len(rows)] * taps[:, 0]
    for tap in range(1, taps.shape[1]):
        total = total + everything[tap : tap + len(rows)] * taps[:, tap]
    return total
