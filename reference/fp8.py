"""FP8 e4m3 exactly as defined: rounding, linear weights with one scale, and the scaled KV cache."""

import torch
from torch import Tensor

from .norm import wide

LARGEST = 448.0  # of e4m3 without infinities; conversion saturates here


def round_e4m3(x: Tensor) -> Tensor:
    """Round to the nearest e4m3 value, ties to even, saturating at 448; NaN stays NaN. Shape and dtype are kept.

    Rounds once from x's own dtype (torch's cast of a float64 rounds twice), so every result is exact in float16 and up.
    """
    exact = wide(x)
    exponent = (torch.frexp(exact).exponent - 1).clamp(min=-6)  # floor(log2 |x|); subnormals share the lowest
    step = torch.exp2((exponent - 3).to(exact.dtype))  # three mantissa bits
    rounded = (torch.round(exact / step) * step).clamp(-LARGEST, LARGEST)
    return torch.copysign(rounded, exact).to(x.dtype)


def encode(x: Tensor) -> Tensor:
    """The e4m3 codes of x, as torch.float8_e4m3fn of the same shape."""
    return round_e4m3(x).to(torch.float8_e4m3fn)


def quantise_fp8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Split a weight into e4m3 codes of the same shape and one float32 scale, max |weight| / 448 (1 if all zero)."""
    scale = weight.abs().max().float() / LARGEST
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return encode(weight.float() / scale), scale


def dequantise_fp8(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """w = code * scale, evaluated in dtype (at least float32)."""
    at_least = torch.promote_types(dtype, torch.float32)
    return (codes.to(at_least) * scale.to(at_least)).to(dtype)


def through_fp8(x: Tensor, scale: Tensor) -> Tensor:
    """What x becomes by being stored as e4m3(x / scale) and read as code * scale; any shape, dtype kept."""
    exact = wide(x)
    return (round_e4m3(exact / scale.to(exact)) * scale.to(exact)).to(x.dtype)
