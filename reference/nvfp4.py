"""NVFP4 exactly as defined: e2m1 codes in blocks of 16, e4m3 block scales, one float32 scale per tensor.

Two layouts: ModelOpt's tensor scale multiplies, compressed-tensors' global scale divides (docs/formats.md).
Quantisers work in the dtype that they are given; writers of checkpoints use float32.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding

from .fp8 import LARGEST, encode, round_e4m3
from .norm import wide

BLOCK = 16  # along the input axis
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of codes 0..7; code + 8 is the negative
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between neighbours
SMALLEST_SCALE = 2.0**-9  # the smallest positive e4m3
EMPTY_SCALE = 0.125  # compressed-tensors' block scale where e4m3 gives zero


def codes_of(x: Tensor) -> Tensor:
    """The e2m1 codes (uint8, 0..15) nearest to x, ties to the even code, saturating at 6; shape kept."""
    midpoints = torch.tensor(MIDPOINTS, dtype=x.dtype, device=x.device)
    low, high = torch.bucketize(x.abs(), midpoints), torch.bucketize(x.abs(), midpoints, right=True)
    code = torch.where(low % 2 == 0, low, high)  # the two differ at a midpoint only
    return (code + 8 * torch.signbit(x)).to(torch.uint8)


def values_of(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """The values of e2m1 codes (uint8, 0..15); shape kept. Code 8 is -0."""
    table = torch.tensor(VALUES + tuple(-value for value in VALUES), dtype=dtype, device=codes.device)
    return table[codes.int()]


def pack(codes: Tensor) -> Tensor:
    """Pack codes [out, in] into bytes [out, in / 2], the even input index in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: Tensor) -> Tensor:
    """Undo pack: [out, in / 2] -> [out, in]."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)


def _blocks(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, BLOCK)  # [..., in / 16, 16]


def dequantise(packed: Tensor, scale: Tensor, tensor_scale: Tensor, dtype: torch.dtype, *, divide: bool) -> Tensor:
    """Decode packed [out, in / 2] with block scales [out, in / 16]: w = e2m1 * scale * tensor_scale, or / if divide.

    Evaluated in dtype (at least float32): the product e2m1 * scale is exact there, so w is rounded once.
    """
    at_least = torch.promote_types(dtype, torch.float32)
    pairs = values_of(unpack(torch.arange(256, dtype=torch.uint8, device=packed.device)[:, None]), at_least)  # [256, 2]
    values = embedding(packed.int(), pairs).flatten(-2)  # a look-up per byte is several times faster than per code
    blocks = _blocks(values) * scale.to(at_least)[..., None]
    outer = tensor_scale.to(at_least)
    return (blocks / outer if divide else blocks * outer).flatten(-2).to(dtype)


def block_scales(x: Tensor, tensor_scale: Tensor, *, divide: bool) -> Tensor:
    """ModelOpt's or (divide) compressed-tensors' block scales of x [..., in], rounded to e4m3 values: [..., in / 16].

    A scale of zero, which both layouts replace in a weight, is left to the caller.
    """
    sixth = _blocks(x).abs().amax(-1) / x.new_tensor(6)  # by a Python number, CUDA would multiply with its reciprocal
    return round_e4m3(tensor_scale * sixth if divide else sixth / tensor_scale)


def _codes(x: Tensor, scale: Tensor, tensor_scale: Tensor, *, divide: bool) -> Tensor:
    step = scale / tensor_scale if divide else scale * tensor_scale  # [..., in / 16]
    return codes_of(_blocks(x) / step[..., None]).flatten(-2)


def quantise_nvfp4(weight: Tensor, *, divide: bool = False) -> dict[str, Tensor]:
    """Quantise a weight [out, in] into the tensors of the ModelOpt or (divide) the compressed-tensors layout.

    Returns {"weight", "weight_scale", "weight_scale_2"}, or {"weight_packed", "weight_scale", "weight_global_scale"}.
    ValueError if `in` is not a multiple of 16.
    """
    if weight.shape[-1] % BLOCK:
        raise ValueError(f"weight: the input axis must be a multiple of {BLOCK}, got {weight.shape[-1]}")
    weight = weight.float()
    largest = weight.abs().max()
    if divide:
        tensor_scale = LARGEST * 6 / largest if largest > 0 else weight.new_ones(())
        scale = block_scales(weight, tensor_scale, divide=True)
        scale = torch.where(scale == 0, EMPTY_SCALE, scale)
    else:
        tensor_scale = largest / weight.new_tensor(6 * LARGEST) if largest > 0 else weight.new_ones(())
        scale = block_scales(weight, tensor_scale, divide=False).clamp(SMALLEST_SCALE, LARGEST)
        scale = torch.where(_blocks(weight).abs().amax(-1) == 0, 1.0, scale)
    packed = pack(_codes(weight, scale, tensor_scale, divide=divide))
    if divide:
        return {"weight_packed": packed, "weight_scale": encode(scale), "weight_global_scale": tensor_scale.reshape(1)}
    return {"weight": packed, "weight_scale": encode(scale), "weight_scale_2": tensor_scale}


def through_nvfp4(x: Tensor, tensor_scale: Tensor, *, divide: bool) -> Tensor:
    """What activations x [..., in] become by NVFP4 with a static tensor scale and block scales taken on the spot.

    A block whose scale rounds to zero becomes zero under ModelOpt's rule, and takes 0.125 under compressed-tensors'.
    """
    exact, outer = wide(x), wide(tensor_scale).to(wide(x))
    scale = block_scales(exact, outer, divide=divide)
    empty = scale == 0
    scale = torch.where(empty, EMPTY_SCALE, scale)
    step = (scale / outer if divide else scale * outer)[..., None]
    read = values_of(codes_of(_blocks(exact) / step), exact.dtype) * step
    if not divide:
        read = torch.where(empty[..., None], 0.0, read)
    return read.flatten(-2).to(x.dtype)
