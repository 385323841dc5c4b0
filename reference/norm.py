"""Root-mean-square normalisation, and the precision that sensitive sums are taken in."""

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return x in float32 if its dtype is narrower, else as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, plus_one: bool = False) -> Tensor:
    """Normalise the last axis of x [..., H] by its root mean square and multiply by weight [H].

    `plus_one` multiplies by 1 + weight instead, as Qwen3.5 does outside its delta-net.
    """
    x_wide = wide(x)
    unit = x_wide * torch.rsqrt(x_wide.square().mean(-1, keepdim=True) + eps)
    gain = wide(weight)
    return (unit * (1 + gain if plus_one else gain)).to(x.dtype)
