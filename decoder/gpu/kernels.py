"""The kernels of this package one by one, as the contract wants to call them: spans from the host, answers to the host.

What is fused is not here: the delta-net's convolution comes with its norms and gates.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from specqual.contract.kernels import Kernels, Seen, Slots, Steps

from ..view import PAGE
from .attention_backends import BACK_ENDS, Attention, present
from .block_convolution import block_convolution
from .heads import Turns, heads
from .norm import rms_norm
from .recurrence import Consumed, recurrence
from .spans import Ledger, Log, Spans
from .top import top


def kernels_of(device: torch.device, dtype: torch.dtype) -> Kernels:
    """All kernels that can be called by themselves, in float32 or bfloat16."""
    return Kernels(
        norm=partial(run_norm, device),
        rotate=partial(run_rotate, device),
        attention={name: partial(run_attention, device, BACK_ENDS[name]) for name in present(device, dtype)},
        recurrence=partial(run_recurrence, device),
        block_convolution=partial(run_block_convolution, device),
        best=partial(run_best, device),
    )


def ints(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def laid(lengths: Sequence[int], starts: Sequence[int], device: torch.device) -> Spans:
    """Spans of these lengths behind each other."""
    return Spans(ints([0, *accumulate(lengths)], device), ints(starts, device))


def run_norm(device: torch.device, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rms_norm(x.to(device), weight.float().to(device), eps)[0].cpu()


def run_rotate(device: torch.device, x: Tensor, positions: Sequence[int], rotary_dim: int, theta: float) -> Tensor:
    turns = Turns.of(max(positions) + 1, rotary_dim, theta, torch.float32)
    turns = Turns(turns.cos.to(device), turns.sin.to(device))
    rows, depth = x.flatten(1).to(device), x.shape[2]
    other, spans = rows[:, :depth], laid([1] * len(x), positions, device)
    return heads(rows, other, other, None, turns, 0.0, spans, most=1, depth=depth)[0].cpu()


def run_attention(
    device: torch.device, back_end: Attention, spans: Sequence[Seen], window: int | None, causal: bool
) -> list[Tensor]:
    """Through pages of their own."""
    kv_heads, depth = spans[0].key.shape[1:]
    counts = [-(-len(span.key) // PAGE) for span in spans]
    cache, table, end = [torch.zeros(1, 2, kv_heads, PAGE, depth, dtype=spans[0].key.dtype)], list[list[int]](), 1
    for span, count in zip(spans, counts, strict=True):
        sides = torch.zeros(2, count * PAGE, kv_heads, depth, dtype=span.key.dtype)
        sides[:, : len(span.key)] = torch.stack([span.key, span.value])
        cache.append(sides.view(2, count, PAGE, kv_heads, depth).permute(1, 0, 3, 2, 4))
        table.append([*range(end, end + count), *[0] * (max(counts) - count)])
        end += count
    lengths = [len(span.query) for span in spans]
    found = back_end(
        torch.cat([span.query for span in spans]).to(device),
        torch.cat(cache).flatten(1).to(device),
        torch.tensor(table, dtype=torch.int32, device=device),
        laid(lengths, [len(span.key) - len(span.query) for span in spans], device),
        most=max(lengths),
        kv_heads=kv_heads,
        window=window,
        causal=causal,
    )
    return list(found.cpu().split(lengths))


def run_recurrence(device: torch.device, spans: Sequence[Steps]) -> list[tuple[Tensor, Tensor]]:
    """One loop over kept and new tokens; where none is new, those to keep are new ones that are certain."""
    logged = [span.kept if span.kept < len(span.query) else 0 for span in spans]
    fresh = [len(span.query) - log for span, log in zip(spans, logged, strict=True)]
    certain = [span.kept - log for span, log in zip(spans, logged, strict=True)]

    def joined(sides: Sequence[Tensor]) -> Tensor:
        return torch.cat([side[log:] for side, log in zip(sides, logged, strict=True)]).to(device)

    def kept(sides: Sequence[Tensor]) -> Tensor:
        """Rings [n, L, ...] of what is logged, from position 1 on."""
        rows = sides[0].new_zeros(len(sides), max(logged) + 1, *sides[0].shape[1:])
        for row, side, log in zip(rows, sides, logged, strict=True):
            row[1 : log + 1] = side[:log]
        return rows.to(device)

    gates = [torch.stack([span.decay, span.beta], dim=1).float() for span in spans]
    key, value = ([getattr(span, name) for span in spans] for name in ("key", "value"))
    log = Log(torch.zeros(0, device=device), kept(key), kept(value), kept(gates))
    new = Consumed(joined([span.query for span in spans]), joined(key), joined(value), joined(gates))
    states = torch.stack([span.state for span in spans]).float().to(device)
    ledger = Ledger(*(ints(side, device) for side in (range(len(spans)), [1] * len(spans), certain)))
    said = recurrence(states, laid(fresh, [1 + log for log in logged], device), ledger, log, new)
    parts = said.cpu().split(fresh)
    return [(part[sure:], state) for part, sure, state in zip(parts, certain, states.cpu().unbind(0), strict=True)]


def run_block_convolution(device: torch.device, spans: Sequence[Slots], base: Tensor) -> list[Tensor]:
    lengths = [len(span.rows) for span in spans]
    z, dynamic = (torch.cat([getattr(span, side) for span in spans]).to(device) for side in ("rows", "dynamic"))
    first = laid(lengths, lengths, device).first
    return list(block_convolution(z, dynamic, base.float().to(device), first, most=max(lengths)).cpu().split(lengths))


def run_best(device: torch.device, logits: Tensor, count: int) -> Tensor:
    return top(logits.float().to(device), count)[0].long().cpu()
