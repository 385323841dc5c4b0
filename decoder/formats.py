"""Stored weights decoded at load: dense, FP8 with one scale, and both layouts of NVFP4."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.quantisation import Format

from .arithmetic import wide, wide_dtype

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # values of codes 0..7; code + 8 is the negative
BLOCK = 16  # inputs that share a block scale
LARGEST = 448.0  # of e4m3


def to_e4m3(x: Tensor, scale: float) -> Tensor:
    """The codes, as bytes, of values in an FP8 cache with a static scale: rounded once, saturating."""
    exact = wide(x) / scale
    return exact.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)


def from_e4m3(codes: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """What codes, as bytes, stand for."""
    return (codes.view(torch.float8_e4m3fn).to(wide_dtype(dtype)) * scale).to(dtype)


def nvfp4(packed: Tensor, scale: Tensor, outer: Tensor, dtype: torch.dtype, *, divide: bool) -> Tensor:
    """Decode packed codes [out, in / 2], the even input low, with block scales [out, in / 16]: [out, in]."""
    table = torch.tensor((*E2M1, *(-value for value in E2M1)), dtype=dtype, device=packed.device)
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).long()
    blocks = table[codes].reshape(*scale.shape, BLOCK) * scale.to(dtype)[..., None]
    return (blocks / outer.to(dtype) if divide else blocks * outer.to(dtype)).flatten(-2)


def decode(kind: Format, part: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
    """The weight [out, in] of a linear module, in `dtype` (float32 or wider), from its stored parts by suffix."""
    if kind is Format.DENSE:
        return part("weight").to(dtype)
    if kind is Format.FP8:
        return part("weight").to(dtype) * part("weight_scale").reshape(()).to(dtype)
    if kind is Format.NVFP4:
        return nvfp4(part("weight"), part("weight_scale"), part("weight_scale_2").reshape(()), dtype, divide=False)
    outer = part("weight_global_scale").reshape(())
    return nvfp4(part("weight_packed"), part("weight_scale"), outer, dtype, divide=True)


def read_weight(checkpoint: Checkpoint[Any], name: str, dtype: torch.dtype) -> Tensor:
    """The weight [out, in] of a checkpoint's linear module, in `dtype`, whatever it is stored as."""
    kind = checkpoint.quantisation.format_of(name)
    return decode(kind, lambda suffix: checkpoint.read(f"{name}.{suffix}"), dtype)
