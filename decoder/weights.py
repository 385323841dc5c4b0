"""Checkpoints turned into modules: every weight decoded once, everything that is no linear module as it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig

from .arithmetic import Linear, fused, gain_of, wide_dtype
from .formats import read_weight


@dataclass(frozen=True, slots=True)
class Layer:
    """A target layer as its kernels want it.

    `enter` makes everything that the mixer is fed with: query, key, value and gate, or mixed, z, b and a. `tensors` are
    named by what they do; `scales` of keys and values in an FP8 cache, or None.
    """

    kind: LayerType
    enter: Linear
    leave: Linear
    gate_up: Linear
    down: Linear
    tensors: Mapping[str, Tensor]
    scales: tuple[float, float] | None = None


def read_linear(checkpoint: Checkpoint[Any], name: str, dtype: torch.dtype) -> Linear:
    """A linear module rounded to `dtype` and held wide."""
    wide = wide_dtype(dtype)
    bias = checkpoint.read(f"{name}.bias").to(dtype).to(wide) if f"{name}.bias" in checkpoint.tensors else None
    return held(read_weight(checkpoint, name, wide), dtype, bias)


def held(weight: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> Linear:
    """A decoded weight [out, in], wide, as a module holds it: rounded to `dtype`, input by input."""
    return Linear(weight.to(dtype).to(weight.dtype).T.contiguous(), bias)


def read_layer(checkpoint: Checkpoint[TargetConfig], index: int, dtype: torch.dtype) -> Layer:
    """Layer `index` of a target."""
    config, prefix = checkpoint.config, f"{checkpoint.config.prefix}layers.{index}."
    kind = config.layer_types[index]

    def module(name: str) -> Linear:
        return read_linear(checkpoint, f"{prefix}{name}", dtype)

    def tensor(name: str) -> Tensor:
        return checkpoint.read(f"{prefix}{name}").to(wide_dtype(dtype))

    def gain(name: str) -> Tensor:
        return gain_of(tensor(f"{name}.weight") + (1 if config.norm_plus_one else 0))

    tensors = {"enter_norm": gain("input_layernorm"), "mlp_norm": gain("post_attention_layernorm")}
    scales = None
    if kind is LayerType.LINEAR:
        enter = fused([module(f"linear_attn.in_proj_{part}") for part in ("qkv", "z", "b", "a")])
        rate, bias = tensor("linear_attn.A_log").exp(), tensor("linear_attn.dt_bias")
        nothing = torch.zeros_like(rate)  # for b, whose lanes go the same way
        tensors |= {
            "rate": torch.cat([nothing, -rate]),
            "bias": torch.cat([nothing, bias]),
            "taps": tensor("linear_attn.conv1d.weight").squeeze(1).T.contiguous(),
            "leave_norm": gain_of(tensor("linear_attn.norm.weight")),
        }
        leave = module("linear_attn.out_proj")
    else:
        query, key, value = (module(f"self_attn.{part}_proj") for part in "qkv")
        query, *gate = halves(query, config.heads) if config.output_gate else (query,)
        enter, leave = fused([query, key, value, *gate]), module("self_attn.o_proj")
        if config.qk_norm:
            query_gain, key_gain = gain("self_attn.q_norm"), gain("self_attn.k_norm")
            tensors["head_norm"] = torch.stack([query_gain] * config.heads + [key_gain] * config.kv_heads)
        scales = kv_scales(checkpoint, index)
    gate_up = fused([module("mlp.gate_proj"), module("mlp.up_proj")])
    return Layer(kind, enter, leave, gate_up, module("mlp.down_proj"), tensors, scales)


def kv_scales(checkpoint: Checkpoint[TargetConfig], index: int) -> tuple[float, float] | None:
    """The scales of keys and values of a layer in an FP8 cache; None without one."""
    if not checkpoint.quantisation.kv_scales:
        return None
    prefix = f"{checkpoint.config.prefix}layers.{index}.self_attn."
    key, value = (
        float(checkpoint.read(name).float()) if name in checkpoint.tensors else 1.0
        for name in (f"{prefix}{side}_proj.{side}_scale" for side in "kv")
    )
    return key, value


def halves(module: Linear, heads: int) -> tuple[Linear, Linear]:
    """The two modules whose outputs alternate, head by head, among those of one."""

    def half(x: Tensor, which: int) -> Tensor:
        return torch.unflatten(x, -1, (heads, 2, -1))[..., which, :].flatten(-2)

    first, second = (
        Linear(half(module.weight, which), None if module.bias is None else half(module.bias, which))
        for which in (0, 1)
    )
    return first, second
