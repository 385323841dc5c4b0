"""Softmax attention with grouped heads, visibility as a mask, and the target's own attention layer."""

import torch
from torch import Tensor

from specqual.contract.config import LayerType, TargetConfig

from .fp8 import through_fp8
from .norm import rms_norm, wide
from .rope import Rope, rotate
from .weights import Layer, project

ROWS = 256  # queries per piece, so that the scores of a long sequence are never all held


def attention(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Attend from query [T, heads, d] to key and value [S, kv_heads, d] where visible [T, S] is true: [T, heads, d].

    Query head h uses key head h // (heads / kv_heads). Every query must see at least one key.
    """
    group = query.shape[1] // key.shape[1]
    key, value = (side.repeat_interleave(group, dim=1).transpose(0, 1) for side in (key, value))  # [heads, S, d]
    pieces = []
    for start in range(0, len(query), ROWS):
        rows = slice(start, start + ROWS)
        scores = query[rows].transpose(0, 1) @ key.transpose(1, 2) * scale  # [heads, rows, S]
        weights = wide(scores).masked_fill(~visible[rows], -torch.inf).softmax(-1).to(value.dtype)
        pieces.append((weights @ value).transpose(0, 1))
    return torch.cat(pieces)


def causal(rows: int, window: int | None = None, device: torch.device | str = "cpu") -> Tensor:
    """Visibility [rows, rows]: query i sees key j iff j <= i and, within a window, i - j < window."""
    distance = torch.arange(rows, device=device)[:, None] - torch.arange(rows, device=device)
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def attend(x: Tensor, layer: Layer, config: TargetConfig, turn: Rope) -> tuple[Tensor, dict[str, Tensor]]:
    """A full or sliding attention layer over normed rows x [T, H]: its output [T, H] and all keys and values.

    `key` and `value` [T, kv_heads, head_dim] are as a cache holds them: after norm and RoPE and, with an FP8 cache,
    after their way through it.
    """
    rows, head_dim = x.shape[0], config.head_dim
    query = project(x, layer.linears["self_attn.q_proj"]).reshape(rows, config.heads, -1)
    gate = None
    if config.output_gate:  # per head: the query's dimensions, then the gate's
        query, gate = query[..., :head_dim], query[..., head_dim:]
    key = project(x, layer.linears["self_attn.k_proj"]).reshape(rows, config.kv_heads, head_dim)
    value = project(x, layer.linears["self_attn.v_proj"]).reshape(rows, config.kv_heads, head_dim)
    if config.qk_norm:
        plus_one = config.norm_plus_one
        query = rms_norm(query, layer.tensors["self_attn.q_norm.weight"], config.eps, plus_one=plus_one)
        key = rms_norm(key, layer.tensors["self_attn.k_norm.weight"], config.eps, plus_one=plus_one)
    query, key = rotate(query, turn), rotate(key, turn)
    if layer.kv_scales is not None:
        key, value = (through_fp8(side, scale) for side, scale in zip((key, value), layer.kv_scales, strict=True))
    window = config.window if layer.kind is LayerType.SLIDING else None
    seen = attention(query, key, value, causal(rows, window, x.device), head_dim**-0.5)
    if gate is not None:
        seen = seen * gate.sigmoid()
    return project(seen.flatten(1), layer.linears["self_attn.o_proj"]), {"key": key, "value": value}
