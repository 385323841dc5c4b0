"""Softmax attention of many samples at once, in fixed shapes: eight queries of a sample against pieces of 64 keys.

Pieces lie at fixed absolute positions. Each product is one of a batch of equal matrices, which do not see each other;
the maximum is exact; and the pieces' sums are added one after the other. A piece that a query does not see adds exact
zeros, so it may be there for another query's sake, or be left out: a row's bits depend on its own position alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .arithmetic import wide

KEYS = 64
QUERIES = 8  # rows of one sample that are multiplied together
LOWEST = -1e30  # below every score, and finite, so that nothing is subtracted from itself at infinity


@dataclass(frozen=True, slots=True)
class Part:
    """Keys and values [n, pieces, kv_heads, 64, d] of n samples, and what is added to the scores, 0 where a query sees
    a key and -inf where not: [n, pieces, 1, 1, queries, 64]. What nobody sees is finite."""

    key: Tensor
    value: Tensor
    mask: Tensor


Attention = Callable[[Tensor, Sequence[Part]], Tensor]
"""Queries [n, 8, heads, d] and the parts of what they see, in order, to [n, 8, heads, d]."""


def attend(query: Tensor, parts: Sequence[Part]) -> Tensor:
    """Attend by pieces, scores scaled by d^-0.5; head h of a query uses key head h // (heads / kv_heads)."""
    count, rows, heads, depth = query.shape
    kv_heads = parts[0].key.shape[2]
    group = heads // kv_heads
    grouped = (wide(query) * depth**-0.5).view(count, 1, rows, kv_heads, group, depth).permute(0, 1, 3, 4, 2, 5)
    scores = list[Tensor]()
    for part in parts:
        pieces = part.key.shape[1]
        repeated = grouped.expand(count, pieces, kv_heads, group, rows, depth).reshape(-1, group * rows, depth)
        score = torch.bmm(repeated, part.key.flatten(0, 2).mT)
        scores.append(score.view(count, pieces, kv_heads, group, rows, KEYS).add_(part.mask))
    best = highest(score.amax((1, 5), keepdim=True) for score in scores).clamp_(min=LOWEST)
    mass, total = list[Tensor](), list[Tensor]()
    for part, score in zip(parts, scores, strict=True):
        weights = score.sub_(best).exp_()  # [n, pieces, kv_heads, group, 8, 64]
        mass += weights.sum(-1).unbind(1)
        found = torch.bmm(weights.view(-1, group * rows, KEYS), part.value.flatten(0, 2))
        total += found.view(*weights.shape[:-1], depth).unbind(1)
    seen = in_order(total).div_(in_order(mass)[..., None])  # [n, kv_heads, group, 8, d]
    return seen.permute(0, 3, 1, 2, 4).reshape(query.shape).to(query.dtype)


def attend_sdpa(query: Tensor, parts: Sequence[Part]) -> Tensor:
    """The same by torch's own attention, whose sums are cut as it pleases."""
    key, value = (
        torch.cat([side.transpose(1, 2).flatten(2, 3) for side in sides], dim=2)
        for sides in ([part.key for part in parts], [part.value for part in parts])
    )  # [n, kv_heads, S, d]
    mask = torch.cat([part.mask.permute(0, 2, 3, 4, 1, 5).flatten(4)[:, 0] for part in parts], dim=-1)
    queries = wide(query).transpose(1, 2)
    seen = scaled_dot_product_attention(queries, key, value, attn_mask=mask.to(queries.dtype), enable_gqa=True)
    return seen.transpose(1, 2).to(query.dtype)


BACK_ENDS: dict[str, Attention] = {"own": attend, "sdpa": attend_sdpa}


def highest(sides: Iterable[Tensor]) -> Tensor:
    """The element-wise maximum."""
    best, *others = sides
    for other in others:
        best = torch.maximum(best, other)
    return best


def in_order(sides: Sequence[Tensor]) -> Tensor:
    """The sum, one after the other."""
    total = sides[0].clone()
    for side in sides[1:]:
        total += side
    return total
