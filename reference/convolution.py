"""The grouped dynamic causal convolution that DFlash 2 puts on both sides of every sublayer."""

import torch
from torch import Tensor


def kernels(projected: Tensor, taps: int) -> tuple[Tensor, Tensor]:
    """The dynamic coefficients of both sides, before and after the sublayer, each [n, taps, groups].

    `projected` [n, 2 * taps * groups] is read as [side, tap, group]. It is the projection of the sublayer's normed
    input before any convolution, so one row decides both of its kernels.
    """
    before, after = projected.reshape(len(projected), 2, taps, -1).unbind(1)
    return before, after


def convolve(z: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
    """Convolve the rows of one block, [n, H] -> [n, H], with zeros before its first row.

    Row i, channel c is the sum over taps t of (base[t, c] + dynamic[i, t, g(c)]) * z[i - t, c], where g(c) is the group
    of channel c. `base` is [taps, H], `dynamic` [n, taps, groups]. Nothing enters from the context or from
    another block.
    """
    taps, channels = base.shape
    kernel = base + dynamic.repeat_interleave(channels // dynamic.shape[2], dim=2)  # [n, taps, H]
    padded = torch.cat([z.new_zeros(taps - 1, channels), z])
    history = padded.unfold(0, taps, 1).flip(-1)  # [n, H, taps], the row itself first
    return torch.einsum("nth,nht->nh", kernel, history)


def convolve_by_definition(z: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
    """The same as `convolve`, one element at a time."""
    taps, channels = base.shape
    group = channels // dynamic.shape[2]
    out = torch.zeros_like(z)
    for i in range(len(z)):
        for c in range(channels):
            for t in range(min(taps, i + 1)):
                out[i, c] += (base[t, c] + dynamic[i, t, c // group]) * z[i - t, c]
    return out
