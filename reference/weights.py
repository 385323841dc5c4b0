"""Weights of a checkpoint, decoded from whatever format they are stored in, a module or a layer at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear as affine

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Format
from specqual.contract.schema import linear as linear_schema
from specqual.contract.schema import target_linears

from .fp8 import dequantise_fp8, through_fp8
from .nvfp4 import dequantise, through_nvfp4

ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Numerics:
    """How weights are evaluated: in which dtype, where, and whether inputs of quantised layers are quantised too."""

    dtype: torch.dtype = torch.float64
    device: torch.device | str = "cpu"
    quantise_activations: bool = False

    @property
    def wide(self) -> torch.dtype:
        """The dtype of norms, gates, softmax and the recurrence: `dtype`, but at least float32."""
        return torch.promote_types(self.dtype, torch.float32)


@dataclass(frozen=True, slots=True)
class Linear:
    """A decoded linear module: weight [out, in], bias [out], and the rounding that its input goes through, if any."""

    weight: Tensor
    bias: Tensor | None = None
    rounding: Callable[[Tensor], Tensor] | None = None


def project(x: Tensor, module: Linear) -> Tensor:
    """Apply a linear module to x [..., in]: [..., out]."""
    return affine(x if module.rounding is None else module.rounding(x), module.weight, module.bias)


def read_linear(checkpoint: Checkpoint[Any], name: str, numerics: Numerics, rows: slice = ALL) -> Linear:
    """Read a linear module of any format, or only some of its output rows.

    With quantised activations, a quantised module without a static input scale is a CheckpointError naming it.
    """
    kind = checkpoint.quantisation.format_of(name)
    dtype, device = numerics.dtype, numerics.device

    def part(suffix: str) -> Tensor:
        return checkpoint.read(f"{name}.{suffix}")

    def cut(suffix: str) -> Tensor:
        return part(suffix)[rows].to(device)

    def scalar(suffix: str) -> Tensor:
        return part(suffix).reshape(()).to(device)

    if kind is Format.DENSE:
        weight = cut("weight").to(dtype)
    elif kind is Format.FP8:
        weight = dequantise_fp8(cut("weight"), scalar("weight_scale"), dtype)
    elif kind is Format.NVFP4:
        weight = dequantise(cut("weight"), cut("weight_scale"), scalar("weight_scale_2"), dtype, divide=False)
    else:
        weight = dequantise(
            cut("weight_packed"), cut("weight_scale"), scalar("weight_global_scale"), dtype, divide=True
        )
    bias = cut("bias").to(dtype) if f"{name}.bias" in checkpoint.tensors else None
    if kind is Format.DENSE or not numerics.quantise_activations:
        return Linear(weight, bias)
    suffix = "input_global_scale" if kind is Format.NVFP4_PACKED else "input_scale"
    if f"{name}.{suffix}" not in checkpoint.tensors:
        raise CheckpointError(f"{name}.{suffix}", "is missing, so its activations cannot be quantised")
    scale = scalar(suffix)
    if kind is Format.FP8:
        return Linear(weight, bias, partial(through_fp8, scale=scale))
    return Linear(weight, bias, partial(through_nvfp4, tensor_scale=scale, divide=kind is Format.NVFP4_PACKED))


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: its linear modules and its other tensors, named within the layer.

    `kv_scales` are those of an FP8 cache's keys and values (1 where the file has none), None without such a cache.
    """

    kind: LayerType
    linears: Mapping[str, Linear]
    tensors: Mapping[str, Tensor]
    kv_scales: tuple[Tensor, Tensor] | None = None


def read_layer(checkpoint: Checkpoint[TargetConfig], index: int, numerics: Numerics) -> Layer:
    """Read and decode layer `index` of a target."""
    config, prefix = checkpoint.config, f"{checkpoint.config.prefix}layers.{index}."
    linears: dict[str, Linear] = {}
    tensors = {name for name in checkpoint.tensors if name.startswith(prefix)}
    for name, (rows, columns, bias) in target_linears(config).items():
        if name.startswith(prefix):
            linears[name.removeprefix(prefix)] = read_linear(checkpoint, name, numerics)
            tensors -= linear_schema(name, rows, columns, checkpoint.quantisation.format_of(name), bias=bias).keys()
    others = {
        name.removeprefix(prefix): checkpoint.read(name).to(numerics.device).to(numerics.wide) for name in tensors
    }
    kind, scales = config.layer_types[index], None
    if checkpoint.quantisation.kv_scales and kind is not LayerType.LINEAR:
        one = torch.ones((), dtype=numerics.wide, device=numerics.device)
        key, value = (others.get(f"self_attn.{side}_proj.{side}_scale", one).reshape(()) for side in "kv")
        scales = key, value
    return Layer(kind, linears, others, scales)


def read_embedding(checkpoint: Checkpoint[TargetConfig]) -> Tensor:
    """The embedding [V, H] in its stored dtype, mapped and not yet read."""
    return checkpoint.read(f"{checkpoint.config.prefix}embed_tokens.weight")


def read_head(checkpoint: Checkpoint[TargetConfig], numerics: Numerics, rows: slice = ALL) -> Linear:
    """The output head [V, H], or some of its rows: the embedding itself where the two are tied."""
    if checkpoint.config.tied:
        return Linear(read_embedding(checkpoint)[rows].to(numerics.device).to(numerics.dtype))
    return read_linear(checkpoint, "lm_head", numerics, rows)
