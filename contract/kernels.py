"""Kernels: what a decoder computes with, as functions on plain tensors, so that each can be qualified by itself.

Every function takes several rows, or several spans of any lengths, in one call, as a pass of the decoder does, and
answers for all of them in order. Tensors are in the dtype of the activations unless it says otherwise, results have the
dtype of the first one. A fast kernel and its slow twin have one signature, so either can be put in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from .quantisation import Format


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of a linear module as a file stores it (docs/formats.md): `parts` by their suffixes.

    DENSE `weight` [out, in]; FP8 `weight` e4m3 [out, in] and `weight_scale`; NVFP4 `weight` u8 [out, in / 2],
    `weight_scale` e4m3 [out, in / 16] and `weight_scale_2`; NVFP4_PACKED `weight_packed`, `weight_scale` and
    `weight_global_scale`. Activations are not quantised.
    """

    format: Format
    parts: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Seen:
    """A span of one sample for attention: query [T, heads, d]; key and value [S, kv_heads, d] of positions 0 to S - 1.

    The queries stand at the last T of these positions; keys and queries are normed and turned.
    """

    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Steps:
    """A span of one sample for the delta-net, T tokens behind `state` [heads, key_dim, value_dim], float32 at least.

    query, key [T, heads, key_dim], both of length one, the query scaled; value [T, heads, value_dim]; decay, beta
    [T, heads]. The first `kept` tokens are those of the last span that were accepted, the others are new.
    """

    state: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """A span of one sample for the causal convolution: rows [T, channels] behind `history` [kernel - 1, channels]."""

    rows: Tensor
    history: Tensor


@dataclass(frozen=True, slots=True)
class Slots:
    """The rows of one drafted block for its convolution: rows [T, H], dynamic coefficients [T, taps, groups]."""

    rows: Tensor
    dynamic: Tensor


Attention = Callable[[Sequence[Seen], int | None, bool], list[Tensor]]
"""Spans, window, causal to [T, heads, d] of each: scores scaled by d^-0.5, head h reads key head h // (heads /
kv_heads). A query sees keys less than a window away, and if causal none behind itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The kernels of one decoder; None is one that it does not have, or not apart from others."""

    linear: Callable[[Tensor, Weight], Tensor] | None = None
    """x [R, in] to [R, out]."""
    norm: Callable[[Tensor, Tensor, float], Tensor] | None = None
    """x [R, H], weight [H] (with any one added), eps: x over its root mean square, times the weight."""
    mlp: Callable[[Tensor, Weight, Weight, Weight], Tensor] | None = None
    """x [R, H], gate and up [I, H], down [H, I]: down(silu(gate x) * up x)."""
    rotate: Callable[[Tensor, Sequence[int], int, float], Tensor] | None = None
    """x [R, heads, d], positions, rotary dimensions, theta: rotate-half over the leading dimensions."""
    attention: Mapping[str, Attention] = field(default_factory=dict)
    """Every back end by the name that Claims.attention gives it."""
    recurrence: Callable[[Sequence[Steps]], list[tuple[Tensor, Tensor]]] | None = None
    """Of each span the outputs [T - kept, heads, value_dim] of its new tokens, and the state behind its kept ones, or
    behind all where none is new."""
    convolution: Callable[[Sequence[Rows], Tensor], list[Tensor]] | None = None
    """Spans and taps [channels, kernel], the last for the row itself: depthwise [T, channels] of each."""
    block_convolution: Callable[[Sequence[Slots], Tensor], list[Tensor]] | None = None
    """Blocks and base [taps, H]: row i is the sum over taps t of (base[t] + dynamic[i, t] of its group) * row i - t."""
    best: Callable[[Tensor, int], Tensor] | None = None
    """Logits [R, V] and k to the ids [R, k] of each row's best, rising; equal logits by lowest id."""


@runtime_checkable
class Dissectable(Protocol):
    """Kernels that can be called one by one: unlocks their exactness and invariance, before there is an engine."""

    def kernels(self) -> Kernels:
        """What this decoder computes with, as it is configured."""
        ...
