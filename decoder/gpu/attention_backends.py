"""Attention by libraries, with the signature of our own: torch's SDPA, and flash-attn where it is installed.

Neither reads these pages, so keys and values are gathered first, alike for both. How their sums are cut is theirs, and
may depend on the batch, so a configuration that uses one does not promise bits. Nothing here waits for the device.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..view import PAGE
from . import need
from .attention import attention
from .spans import Spans
from .splits import Workspace

Attention = Callable[..., Tensor]
"""What `attention.attention` is: queries [R, heads, d] over paged rows, to [R, heads, d]."""


class Laid(NamedTuple):
    """Spans as a rectangle. The rows of a sample are the last ones of `most`, so that its last row is the last one that
    a library sees; the rows in front of them mean nothing. What a sample does not see of keys and values is zero."""

    query: Tensor  # [B, most, heads, d]
    key: Tensor  # [B, S, kv_heads, d], of the queries' dtype; codes are not scaled
    value: Tensor
    ends: Tensor  # [B], the positions that a sample has
    valid: Tensor  # [B, most], which rows are a sample's
    sample: Tensor  # [R], where the rows lie in the rectangle
    rank: Tensor  # [R]


def laid(
    query: Tensor,
    cache: Tensor,
    table: Tensor,
    spans: Spans,
    most: int,
    kv_heads: int,
    window: int | None,
    own: tuple[Tensor, Tensor] | None,
) -> Laid:
    """Gather what the samples see, and `own` rows behind it. Rows behind the last span come out as anything."""
    count, depth = len(spans.start), query.shape[2]
    first, start = spans.first.long(), spans.start.long()
    lengths = first.diff()
    ends = start + lengths
    rows = torch.arange(len(query), device=query.device)
    sample = torch.searchsorted(first[1:], rows, right=True).clamp(max=count - 1)
    rank = rows - first[sample]
    places = torch.arange(most, device=query.device) + (lengths - most)[:, None]  # [B, most], ranks in a span
    asked = query[(first[:-1, None] + places).clamp(0, len(query) - 1)]
    codes = cache[:, : 2 * kv_heads * PAGE * depth].view(torch.uint8)  # which every device can gather
    sides = codes[table.long()].view(cache.dtype).to(query.dtype).view(count, -1, 2, kv_heads, PAGE, depth)
    key, value = sides.permute(2, 0, 1, 4, 3, 5).flatten(2, 3).unbind(0)  # [B, S, kv_heads, d]
    if own is not None:
        there = (start[sample] + rank).clamp(max=key.shape[1] + most)  # the last place is nobody's
        more = key.new_zeros(count, most + 1, kv_heads, depth)
        key, value = (
            torch.cat([side, more], dim=1).index_put((sample, there), mine)
            for side, mine in zip((key, value), own, strict=True)
        )
    positions = torch.arange(key.shape[1], device=query.device)
    readable = positions < ends[:, None]
    if window is not None:
        readable &= positions > (start - window)[:, None]
    key, value = (side.masked_fill(~readable[..., None, None], 0.0) for side in (key, value))
    return Laid(asked, key, value, ends, places >= 0, sample, (most - lengths)[sample] + rank)


def left(found: Tensor, there: Laid, scale: float, gate: Tensor | None, out: Tensor | None) -> Tensor:
    """The rows [R, heads, d] of a rectangle of results, with values' scale and gate."""
    most = found.shape[1]
    result = found[there.sample, there.rank.clamp(max=most - 1)].float() * scale
    if gate is not None:
        result = result * gate.float().sigmoid().view(result.shape)
    return result.to(found.dtype) if out is None else out.copy_(result)


def attention_sdpa(
    query: Tensor,
    cache: Tensor,
    table: Tensor,
    spans: Spans,
    *,
    most: int,
    kv_heads: int,
    scales: tuple[float, float] = (1.0, 1.0),
    window: int | None = None,
    causal: bool = True,
    own: tuple[Tensor, Tensor] | None = None,
    gate: Tensor | None = None,
    workspace: Workspace | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The same as `attention`, by torch."""
    there = laid(query, cache, table, spans, most, kv_heads, window, own)
    count, _, heads, depth = there.query.shape
    group = heads // kv_heads
    places = (there.ends - most)[:, None] + torch.arange(most, device=query.device)
    positions = torch.arange(there.key.shape[1], device=query.device)
    away = places[..., None] - positions  # [B, most, S]
    seen = (positions < there.ends[:, None])[:, None].expand_as(away)
    if causal:
        seen = seen & (away >= 0)
    if window is not None:
        seen = seen & (away.abs() < window)
    seen = seen | ~there.valid[..., None]  # nobody's rows see everything, so that none is empty
    found = scaled_dot_product_attention(
        there.query.view(count, most, kv_heads, group, depth).permute(0, 2, 3, 1, 4).flatten(2, 3),
        there.key.transpose(1, 2),
        there.value.transpose(1, 2),
        attn_mask=seen[:, None].repeat(1, 1, group, 1),
        scale=depth**-0.5 * scales[0],
    )  # [B, kv_heads, group * most, d]
    found = found.view(count, kv_heads, group, most, depth).permute(0, 3, 1, 2, 4).flatten(2, 3)
    return left(found, there, scales[1], gate, out)


def attention_flash(
    query: Tensor,
    cache: Tensor,
    table: Tensor,
    spans: Spans,
    *,
    most: int,
    kv_heads: int,
    scales: tuple[float, float] = (1.0, 1.0),
    window: int | None = None,
    causal: bool = True,
    own: tuple[Tensor, Tensor] | None = None,
    gate: Tensor | None = None,
    workspace: Workspace | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The same as `attention`, by flash-attn, in bfloat16. It puts the last row of a sample at its last position."""
    from flash_attn import flash_attn_with_kvcache

    there = laid(query, cache, table, spans, most, kv_heads, window, own)
    sides = (-1, 0 if causal else -1) if window is None else (window - 1, 0 if causal else window - 1)
    found = flash_attn_with_kvcache(
        there.query,
        there.key.contiguous(),
        there.value.contiguous(),
        cache_seqlens=there.ends.int(),
        softmax_scale=query.shape[2] ** -0.5 * scales[0],
        causal=causal,
        window_size=sides,
    )
    return left(found, there, scales[1], gate, out)


BACK_ENDS: Mapping[str, Attention] = {"own": attention, "sdpa": attention_sdpa, "flash": attention_flash}


def present(device: torch.device, dtype: torch.dtype) -> list[str]:
    """The names of those that can run here."""
    return [name for name in BACK_ENDS if name != "flash" or need.has_flash(device.type, dtype)]
