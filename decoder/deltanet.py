"""The gated delta-net, one token at a time: the recurrence, and the causal convolution in front of it.

The samples of a batch stand side by side: everything here is element by element, but for sums over the keys of a head,
whose order does not depend on how many samples there are (`tests/test_decoder_equality.py` looks at it).
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

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

    def behind(self, logs: "Inputs") -> "Inputs":
        """Flat rows: the logs [B, longest, ...] of all samples, and then these."""
        names = [field.name for field in fields(Inputs)]
        return Inputs(*(torch.cat([getattr(logs, name).flatten(0, 1), getattr(self, name)]) for name in names))


def step(state: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """One token of n samples: states [n, heads, key_dim, value_dim] forget by decay, then write beta (value - what key
    reads) at key.

    Shapes as in Inputs, n in front. Products and sums are separate calls: contracted to one rounding, the same token
    could have two results.
    """
    state = state * decay[..., None, None]
    write = beta[..., None] * (value - (key[..., None] * state).sum(-2))
    return state + key[..., None] * write[..., None, :]


def recur(states: Tensor, query: Tensor, inputs: Inputs, replay: Replay) -> tuple[Tensor, Tensor]:
    """One loop over the tokens of all samples: outputs [R, heads, value_dim] of the new rows, and the states behind
    each stop, [stops, heads, key_dim, value_dim].

    `states` [B, ...] stand at the boundary in front of the logs, `query` [R, heads, key_dim] belongs to the new rows,
    `inputs` are flat rows. Fold and verify are this one loop, so both round alike.
    """
    stored = torch.empty(len(replay.stops), *states.shape[1:], dtype=states.dtype)
    new = len(inputs.mixed) - len(query)
    outputs = list[Tensor]()

    def store(tokens: int) -> None:
        for place, (stop, sample) in enumerate(replay.stops):
            if stop == tokens:
                stored[place] = states[sample]

    store(0)
    for token, running in enumerate(replay.running):
        rows = replay.tokens[token, :running]
        states = step(states[:running], inputs.key[rows], inputs.value[rows], inputs.decay[rows], inputs.beta[rows])
        store(token + 1)
        if replay.spoken[token]:
            outputs.append((query[(rows - new).clamp(min=0)][..., None] * states).sum(-2))
    return torch.cat(outputs)[replay.outputs], stored


def convolve(rows: Tensor, taps: Tensor) -> Tensor:
    """Causal depthwise convolution: rows [R, kernel, channels], each with its history, oldest first, and taps
    [channels, kernel] to [R, channels]. Taps are added from the oldest row on."""
    total = rows[:, 0].to(taps.dtype) * taps[:, 0]
    for tap in range(1, taps.shape[1]):
        total = total + rows[:, tap].to(taps.dtype) * taps[:, tap]
    return total
