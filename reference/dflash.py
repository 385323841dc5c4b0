"""The block pass of the DFlash family: one masked block over a context of projected target features.

A layer is a Qwen3 layer with two differences. Its keys and values come from two kinds of rows: context rows, made from
the target's hidden states and the same for every layer, and the block's own rows. And DFlash 2 wraps each
sublayer in a convolution over the block's rows. RMSNorm multiplies by w, not 1 + w.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from specqual.contract.config import LayerType
from specqual.contract.draft import DraftConfig

from .attention import attention
from .convolution import convolve, kernels
from .norm import rms_norm
from .rope import rope, rotate
from .weights import Linear, project


@dataclass(frozen=True, slots=True)
class BlockModel:
    """A drafter's configuration, its linear modules, and its other tensors, both by schema name."""

    config: DraftConfig
    linears: Mapping[str, Linear]
    tensors: Mapping[str, Tensor]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return project(x, self.linears[name])

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self.tensors[f"{name}.weight"], self.config.eps)


def window_of(config: DraftConfig, layer: int) -> int | None:
    """The layer's sliding window, None if it sees everything."""
    return config.window if config.layer_types[layer] is LayerType.SLIDING else None


def visible(queries: range, keys: range, causal: bool, window: int | None) -> Tensor:
    """Which of the key positions [m] each query position [n] may look at, as a mask [n, m].

    A window W is measured from the query itself and cuts the past at q - k < W; in a layer that is not causal it cuts
    the future likewise, k - q < W.
    """
    distance = torch.tensor(queries)[:, None] - torch.tensor(keys)
    mask = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return mask if window is None else mask & (distance.abs() < window)


def context_rows(model: BlockModel, hidden: Sequence[Tensor]) -> Tensor:
    """Project the target's hidden states, N + 1 of [P, H], to the context rows [P, H] that every layer reads.

    The feature of target layer i is the residual stream after it, `hidden[i + 1]`; features lie side by side in the
    order of the list.
    """
    feature = torch.cat([hidden[i + 1] for i in model.config.target_layer_ids], dim=-1)
    return model.norm("hidden_norm", model.linear("fc", feature))


def keys_values(model: BlockModel, layer: int, rows: Tensor, positions: range) -> tuple[Tensor, Tensor]:
    """Keys (after k_norm and RoPE) and values of context or block rows [m, H], each [m, kv_heads, head_dim]."""
    name, config = f"layers.{layer}.self_attn", model.config
    heads = (len(rows), config.kv_heads, config.head_dim)
    key = model.norm(f"{name}.k_norm", model.linear(f"{name}.k_proj", rows).reshape(heads))
    turn = rope(positions, config.head_dim, config.rope_theta, rows.device)
    return rotate(key, turn), model.linear(f"{name}.v_proj", rows).reshape(heads)


def _attend(model: BlockModel, layer: int, context: Tensor, x: Tensor) -> Tensor:
    config, name = model.config, f"layers.{layer}.self_attn"
    end = len(context) + len(x)
    before, inside = range(len(context)), range(len(context), end)  # context row t at position t, the block behind
    query = model.linear(f"{name}.q_proj", x).reshape(len(x), config.heads, config.head_dim)
    query = rotate(model.norm(f"{name}.q_norm", query), rope(inside, config.head_dim, config.rope_theta, x.device))
    old_key, old_value = keys_values(model, layer, context, before)
    new_key, new_value = keys_values(model, layer, x, inside)
    mask = visible(inside, range(end), config.is_causal, window_of(config, layer)).to(x.device)
    key, value = torch.cat([old_key, new_key]), torch.cat([old_value, new_value])
    return model.linear(f"{name}.o_proj", attention(query, key, value, mask, config.head_dim**-0.5).flatten(1))


def _mlp(model: BlockModel, layer: int, x: Tensor) -> Tensor:
    name = f"layers.{layer}.mlp"
    gate = silu(model.linear(f"{name}.gate_proj", x))
    return model.linear(f"{name}.down_proj", gate * model.linear(f"{name}.up_proj", x))


def _convolved(model: BlockModel, name: str, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    convolution = model.config.convolution
    if convolution is None:
        return sublayer(x)
    base = model.tensors[f"{name}.base_kernel"]  # [side, tap, H]
    before, after = kernels(model.linear(f"{name}.kernel_projection", x), convolution.kernel)
    return convolve(sublayer(convolve(x, before, base[0])), after, base[1])


def _layer(model: BlockModel, layer: int, context: Tensor, block: Tensor) -> Tensor:
    name = f"layers.{layer}"
    x = model.norm(f"{name}.input_layernorm", block)
    block = block + _convolved(model, f"{name}.attention_conv", x, lambda x: _attend(model, layer, context, x))
    x = model.norm(f"{name}.post_attention_layernorm", block)
    return block + _convolved(model, f"{name}.mlp_conv", x, lambda x: _mlp(model, layer, x))


def block_pass(model: BlockModel, context: Tensor, block: Tensor) -> Tensor:
    """Run one block's input embeddings [n, H] over the context rows [P, H]; returns the final-normed states [n, H].

    Context row t stands at position t, block row j at P + j. The number of rows is free: a short block at the end of
    a budget is a block like any other.
    """
    for layer in range(model.config.layers):
        block = _layer(model, layer, context, block)
    return model.norm("norm", block)
