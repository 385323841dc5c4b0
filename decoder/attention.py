"""Softmax attention of one tile of queries, piece after piece of keys, with a running maximum.

Pieces hold 64 keys at fixed absolute positions, so a query's sums are taken in an order that depends on its own
position alone. A piece that a query does not see leaves its running sums as they are, bit for bit: it may be there for
another query's sake, or be left out.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from .arithmetic import wide

KEYS = 64
LOWEST = -1e30  # below every score, and finite, so that nothing is subtracted from itself at infinity

Piece = tuple[Tensor, Tensor, Tensor]
"""key and value [64, kv_heads, d], visible [16, 64]."""


def pieces(key: Tensor, value: Tensor, visible: Tensor) -> Iterator[Piece]:
    """Cut key and value [S, kv_heads, d] and visible [16, S], S a multiple of 64, leaving out what nobody sees."""
    for key_part, value_part, seen in zip(
        torch.split(key, KEYS), torch.split(value, KEYS), torch.split(visible, KEYS, 1), strict=True
    ):
        if bool(seen.any()):
            yield key_part, value_part, seen


def attend(query: Tensor, parts: Iterable[Piece], kv_heads: int) -> Tensor:
    """Attend from one tile of queries [16, heads, d], scaled by d^-0.5: [16, heads, d] in the query's dtype.

    Query head h uses key head h // (heads / kv_heads). A query that sees nothing at all gives zeros.
    """
    rows, heads, depth = query.shape
    group = heads // kv_heads
    grouped = (
        wide(query).reshape(rows, kv_heads, group, depth).permute(1, 2, 0, 3).reshape(kv_heads, group * rows, depth)
    )
    grouped = grouped * depth**-0.5
    best = grouped.new_full((kv_heads, group * rows), LOWEST)
    mass, total = torch.zeros_like(best), torch.zeros_like(grouped)
    for key, value, visible in parts:
        scores = torch.bmm(grouped, wide(key).permute(1, 2, 0).contiguous())  # [kv_heads, group * 16, 64]
        scores = scores.masked_fill(~visible.repeat(group, 1), -torch.inf)
        higher = torch.maximum(best, scores.amax(-1))
        weights = torch.exp(scores - higher[..., None])
        kept = torch.exp(best - higher)
        mass = mass * kept + weights.sum(-1)
        total = total * kept[..., None] + torch.bmm(weights, wide(value).permute(1, 0, 2).contiguous())
        best = higher
    seen = total / mass.clamp(min=torch.finfo(mass.dtype).tiny)[..., None]
    return seen.reshape(kv_heads, group, rows, depth).permute(2, 0, 1, 3).reshape(rows, heads, depth).to(query.dtype)
