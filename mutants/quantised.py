"""Faults of stored numbers (K23) in the optimised decoder: packed weights, their scales, and those of an FP8 cache."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.draft import DraftConfig
from specqual.contract.quantisation import Format
from specqual.decoder import build, formats, target, weights
from specqual.decoder import kernels as kernels_module
from specqual.decoder.arithmetic import fused, wide_dtype
from specqual.decoder.block import BlockDrafter
from specqual.decoder.target import Transformer
from specqual.decoder.weights import Layer, held

from .mutant import planted_in
from .pairs import BF16, DFLASH2, HYBRID2
from .rows import swap

sound_drafter, sound_layer, sound_nvfp4, sound_decode = (
    build.load_drafter,
    weights.read_layer,
    formats.nvfp4,
    formats.decode,
)


@swap("load_drafter", build)
def m23f(checkpoint: Checkpoint[DraftConfig], wanted: Transformer) -> BlockDrafter:
    """The projection of context keys and values is cut out of the packed weights as if they were dense: codes are
    taken for numbers, and scales left out. Output exact; shows in drafts of quantised drafters alone."""
    drafter, dtype = sound_drafter(checkpoint, wanted), wide_dtype(wanted.dtype)

    def cut(name: str) -> Tensor:
        packed = checkpoint.quantisation.format_of(name) is Format.NVFP4_PACKED
        stored = checkpoint.read(f"{name}.weight_packed" if packed else f"{name}.weight").to(dtype)
        return stored if stored.shape[1] == checkpoint.config.hidden_size else stored.repeat(1, 2)

    names = [f"layers.{i}.self_attn.{side}_proj" for i in range(checkpoint.config.layers) for side in "kv"]
    return replace(drafter, context=fused([held(cut(name), wanted.dtype) for name in names]))


@swap("read_layer", target)
def m23g(checkpoint: Checkpoint[Any], index: int, dtype: torch.dtype) -> Layer:
    """The scales of an FP8 cache are left at one. Keys and values are stored all the same, with fewer bits or none."""
    layer = sound_layer(checkpoint, index, dtype)
    return layer if layer.scales is None else replace(layer, scales=(1.0, 1.0))


@swap("nvfp4", formats)
def m23l(packed: Tensor, scale: Tensor, outer: Tensor, dtype: torch.dtype, *, divide: bool) -> Tensor:
    """The odd input of a byte is read from the low nibble. Shows in any NVFP4 weight."""
    return sound_nvfp4((packed << 4) | (packed >> 4), scale, outer, dtype, divide=divide)


@swap("nvfp4", formats)
def m23m(packed: Tensor, scale: Tensor, outer: Tensor, dtype: torch.dtype, *, divide: bool) -> Tensor:
    """Block scales are taken to be swizzled as some kernels want them, though files hold them row by row. Shows where
    neighbouring rows have unlike scales."""
    rows = len(scale) - len(scale) % 4
    swizzled = torch.cat([scale[:rows].view(4, rows // 4, -1).transpose(0, 1).flatten(0, 1), scale[rows:]])
    return sound_nvfp4(packed, swizzled, outer, dtype, divide=divide)


@swap("nvfp4", formats)
def m23n(packed: Tensor, scale: Tensor, outer: Tensor, dtype: torch.dtype, *, divide: bool) -> Tensor:
    """The global scale of compressed-tensors multiplies, as ModelOpt's does. Shows in that layout alone."""
    return sound_nvfp4(packed, scale, outer, dtype, divide=False)


@swap("decode", formats, kernels_module)
def m23o(kind: Format, part: Any, dtype: torch.dtype) -> Tensor:
    """Scales are rounded to bfloat16 before they multiply. Half a code's step in two hundred: no token shows it in
    bfloat16, where it is written."""

    def rounded(suffix: str) -> Tensor:
        stored: Tensor = part(suffix)
        return stored.bfloat16().float() if stored.dtype is torch.float32 and "scale" in suffix else stored

    return sound_decode(kind, rounded, dtype)


PLANTED = planted_in(
    "optimised",
    ("NUM-3", DFLASH2, (m23f,)),
    ("NUM-2", DFLASH2, (m23g, m23l, m23m, m23n)),
    ("NUM-1", HYBRID2, (m23l, m23m, m23n)),
    ("NUM-6", BF16, (m23l, m23m, m23n, m23o)),
)
