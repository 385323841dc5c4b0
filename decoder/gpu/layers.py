"""The layers of a target on the device: its weights in their own formats, and what one launch after the other does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig

from ..memory import Store
from ..pages import Pages
from .attention_backends import Attention
from .convolution import convolution
from .gated import silu_mul
from .gated_norm import gated_norm
from .heads import Place, Turns, heads
from .modules import Module, Siblings, Stored, module_of
from .pools import DeviceSlots
from .recurrence import recurrence
from .rounds import Told


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. `enter` are query, key, value and gate, or mixed, z, b and a; `tensors` are float32."""

    index: int
    kind: LayerType
    enter: Siblings
    leave: Module
    gate_up: Module
    down: Module
    tensors: Mapping[str, Tensor]


def widen(layer: Layer, x: Tensor) -> Tensor:
    """The gated MLP of normed rows [R, H]."""
    return layer.down(silu_mul(layer.gate_up(x)))


def place_of(pages: Pages, name: str, told: Told) -> Place:
    stream = pages.streams[name]
    return Place(pages.cache(stream), told.tables[name], stream.scales or (1.0, 1.0))


def attend(
    config: TargetConfig, turns: Turns, attention: Attention, layer: Layer, x: Tensor, told: Told, store: Store
) -> Tensor:
    """Attention of normed rows [R, H], whose keys and values go into the pages."""
    query, key, value, *gate = layer.enter(x)
    tensors = layer.tensors
    gains = (tensors["query_norm"], tensors["key_norm"]) if config.qk_norm else None
    name = f"target.{layer.index}"
    place = place_of(store.pages, name, told)
    query, _, _ = heads(
        query, key, value, gains, turns, config.eps, told.spans, most=told.most, depth=config.head_dim, place=place
    )
    seen = attention(
        query,
        place.cache,
        place.table,
        told.spans,
        most=told.most,
        kv_heads=config.kv_heads,
        scales=place.scales,
        window=store.pages.streams[name].window,
        gate=gate[0] if gate else None,
    )
    return layer.leave(seen.flatten(1))


def recur(config: TargetConfig, layer: Layer, x: Tensor, told: Told, slots: DeviceSlots) -> Tensor:
    """The delta-net of normed rows [R, H], whose states and logs lie in the slots."""
    mixed, z, b, a = layer.enter(x)
    states, log = slots.of(layer.index)
    taps, bias, rate, gain = (layer.tensors[name] for name in ("taps", "bias", "rate", "leave_norm"))
    new = convolution(mixed, b, a, taps, bias, rate, told.spans, told.ledger, log)
    seen = recurrence(states, told.spans, told.ledger, log, new)
    return layer.leave(gated_norm(seen, z, gain, config.eps, x.dtype))


def read_layer(checkpoint: Checkpoint[TargetConfig], index: int, dtype: torch.dtype, device: torch.device) -> Layer:
    """Layer `index` of a target."""
    config, prefix = checkpoint.config, f"{checkpoint.config.prefix}layers.{index}."
    kind = config.layer_types[index]

    def stored(name: str) -> Stored:
        return Stored.read(checkpoint, f"{prefix}{name}")

    def one(name: str) -> Module:
        return module_of([stored(name)], dtype, device)

    def tensor(name: str) -> Tensor:
        return checkpoint.read(f"{prefix}{name}").float().to(device)

    def gain(name: str) -> Tensor:
        return tensor(f"{name}.weight") + (1 if config.norm_plus_one else 0)

    tensors = {"enter_norm": gain("input_layernorm"), "mlp_norm": gain("post_attention_layernorm")}
    if kind is LayerType.LINEAR:
        enter = [stored(f"linear_attn.in_proj_{part}") for part in ("qkv", "z", "b", "a")]
        tensors |= {
            "rate": -tensor("linear_attn.A_log").exp(),
            "bias": tensor("linear_attn.dt_bias"),
            "taps": tensor("linear_attn.conv1d.weight").squeeze(1).T.contiguous(),
            "leave_norm": tensor("linear_attn.norm.weight"),
        }
        leave = one("linear_attn.out_proj")
    else:
        query, key, value = (stored(f"self_attn.{part}_proj") for part in "qkv")
        query, *gate = (query.picked(half(config.heads, which)) for which in (0, 1)) if config.output_gate else (query,)
        enter = [query, key, value, *gate]
        if config.qk_norm:
            tensors |= {"query_norm": gain("self_attn.q_norm"), "key_norm": gain("self_attn.k_norm")}
        leave = one("self_attn.o_proj")
    gate_up = module_of([stored("mlp.gate_proj"), stored("mlp.up_proj")], dtype, device)
    return Layer(index, kind, Siblings.of(enter, dtype, device), leave, gate_up, one("mlp.down_proj"), tensors)


def half(heads: int, which: int) -> Callable[[Tensor], Tensor]:
    """Picks the rows of one of two modules whose outputs alternate, head by head."""

    def pick(rows: Tensor) -> Tensor:
        return torch.unflatten(rows, 0, (heads, 2, -1))[:, which].flatten(0, 1)

    return pick
