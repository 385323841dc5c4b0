"""Checkpoints turned into modules: every weight decoded once, everything that is no linear module as it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.schema import linear as linear_schema
from specqual.contract.schema import target_linears

from .arithmetic import Linear, wide_dtype
from .formats import read_weight


@dataclass(frozen=True, slots=True)
class Layer:
    """A target layer: linear modules and other tensors, named within it; `kv_scales` [2] of an FP8 cache or None."""

    kind: LayerType
    linears: Mapping[str, Linear]
    tensors: Mapping[str, Tensor]
    kv_scales: Tensor | None = None


def read_linear(checkpoint: Checkpoint[Any], name: str, dtype: torch.dtype) -> Linear:
    """A linear module rounded to `dtype` and held wide."""
    wide = wide_dtype(dtype)
    bias = checkpoint.read(f"{name}.bias").to(dtype).to(wide) if f"{name}.bias" in checkpoint.tensors else None
    return Linear(read_weight(checkpoint, name, wide).to(dtype).to(wide), bias)


def read_layer(checkpoint: Checkpoint[TargetConfig], index: int, dtype: torch.dtype) -> Layer:
    """Layer `index` of a target; gains of norms are held ready to multiply, one added where the architecture does."""
    config, wide = checkpoint.config, wide_dtype(dtype)
    prefix = f"{config.prefix}layers.{index}."
    linears, others = dict[str, Linear](), {name for name in checkpoint.tensors if name.startswith(prefix)}
    for name, (rows, columns, bias) in target_linears(config).items():
        if name.startswith(prefix):
            linears[name.removeprefix(prefix)] = read_linear(checkpoint, name, dtype)
            others -= linear_schema(name, rows, columns, checkpoint.quantisation.format_of(name), bias=bias).keys()
    tensors = {name.removeprefix(prefix): checkpoint.read(name).to(wide) for name in others}
    for name in tensors:
        if config.norm_plus_one and name.endswith("norm.weight") and not name.startswith("linear_attn."):
            tensors[name] = 1 + tensors[name]
    kind, scales = config.layer_types[index], None
    if checkpoint.quantisation.kv_scales and kind is not LayerType.LINEAR:
        found = [tensors.get(f"self_attn.{side}_proj.{side}_scale") for side in "kv"]
        scales = torch.stack([torch.ones(()) if scale is None else scale.reshape(()).float() for scale in found])
    return Layer(kind, linears, tensors, scales)
