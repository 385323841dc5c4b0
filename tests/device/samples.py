"""Rows of a batch laid out as spans: row i is row i % each of sample i // each, however many rows there are."""

import torch
from torch import Tensor

from specqual.decoder.gpu.spans import Spans

KEPT = 2**28  # bytes that calls take turns with: more than any cache holds


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def spans_of(rows: int, each: int, start: int) -> Spans:
    """Spans of `each` rows behind `start` tokens; the last one may be shorter."""
    samples = -(-rows // each)
    return Spans(ints(*(min(i * each, rows) for i in range(samples + 1))), ints(*[start] * samples))


def noise(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Always the same numbers, and fewer of them are the first ones of more."""
    source = torch.Generator("cuda").manual_seed(seed)
    inner = shape[1:]
    return torch.stack([torch.randn(inner, device="cuda", generator=source) for _ in range(shape[0])]).to(dtype)
