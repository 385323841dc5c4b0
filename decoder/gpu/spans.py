"""Where the new rows of a pass lie and stand, as tensors on the device: what changes from round to round in a graph."""

from typing import NamedTuple

from torch import Tensor


class Spans(NamedTuple):
    """The new rows of B samples, behind each other.

    A sample that only fills up a captured batch has no rows.
    """

    first: Tensor  # [B + 1] int32: rows first[b] to first[b + 1] are those of sample b
    start: Tensor  # [B] int32: the position of its first row, which is also the number of tokens in front of it


class Ledger(NamedTuple):
    """What B samples have of recurrent state.

    The pool holds the state of a slot behind `boundary` tokens; the tokens from there to a span's start are in the
    slot's log. A pass moves the boundary to `certain` tokens behind the start. At boundary 0 the state is zero,
    whatever the pool holds.
    """

    slots: Tensor  # [B] int32
    boundary: Tensor  # [B] int32
    certain: Tensor  # [B] int32


class Log(NamedTuple):
    """The last tokens of every slot, each at its position modulo the length of a ring.

    `key`, `value` and `gates` are exactly what the recurrence consumed, `mixed` what the convolution consumed. The
    first three need twice as many places as a span has tokens that may be rejected; `mixed` as many as such tokens, and
    one less than the convolution has taps.
    """

    mixed: Tensor  # [slots, M, channels]
    key: Tensor  # [slots, L, key_heads, key_dim]
    value: Tensor  # [slots, L, value_heads, value_dim]
    gates: Tensor  # [slots, L, 2, value_heads] float32: decay, beta
