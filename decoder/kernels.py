"""The kernels one by one, on plain tensors that are laid out as in a pass: what a pass runs, and nothing beside it."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from specqual.contract.config import DeltaNet
from specqual.contract.kernels import Kernels, Rows, Seen, Slots, Steps, Weight

from . import block, deltanet
from .arithmetic import Linear, Turns, fused, gain_of, linear, mlp, rms_norm, rotate, wide, wide_dtype
from .attention import BACK_ENDS, Attention
from .choice import best_ids
from .deltanet import Inputs
from .formats import decode
from .memory import Memory
from .pages import Pages, Stream, empty_table
from .replay import Replay, replay_of
from .span import Span
from .tile import Kernel, Tiling
from .view import rows_of, view_of
from .weights import held


def kernels_of(tiling: Tiling) -> Kernels:
    """All kernels of a decoder that runs rows with this tiling."""
    return Kernels(
        linear=partial(run_linear, tiling),
        norm=partial(run_norm, tiling),
        mlp=partial(run_mlp, tiling),
        rotate=partial(run_rotate, tiling),
        attention={name: partial(run_attention, tiling, back_end) for name, back_end in BACK_ENDS.items()},
        recurrence=partial(run_recurrence, tiling),
        convolution=partial(run_convolution, tiling),
        block_convolution=partial(run_block_convolution, tiling),
        best=best_ids,
    )


@torch.inference_mode()
def tiled(tiling: Tiling, kernel: Kernel, *rows: Tensor) -> Tensor:
    """What a kernel makes of rows [R, ...] each, tile by tile: its first output, [R, ...]."""
    return tiling.run(kernel, *(tiling.padded(side) for side in rows))[0][: len(rows[0])]


def module_of(weight: Weight, dtype: torch.dtype) -> Linear:
    return held(decode(weight.format, weight.parts.__getitem__, wide_dtype(dtype)), dtype)


def run_linear(tiling: Tiling, x: Tensor, weight: Weight) -> Tensor:
    module = module_of(weight, x.dtype)
    return tiled(tiling, lambda x: (linear(x, module),), x)


def run_norm(tiling: Tiling, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    gain = gain_of(wide(weight))
    return tiled(tiling, lambda x: (rms_norm(x, gain, eps),), x)


def run_mlp(tiling: Tiling, x: Tensor, gate: Weight, up: Weight, down: Weight) -> Tensor:
    both, last = fused([module_of(side, x.dtype) for side in (gate, up)]), module_of(down, x.dtype)
    return tiled(tiling, lambda x: (mlp(x, both, last),), x)


def run_rotate(tiling: Tiling, x: Tensor, positions: Sequence[int], rotary_dim: int, theta: float) -> Tensor:
    turns = Turns.of(max(positions) + 1, rotary_dim, theta, wide_dtype(x.dtype))
    return tiled(tiling, lambda *sides: (rotate(*sides),), x, *turns.at(torch.tensor(positions), x.dtype))


@torch.inference_mode()
def run_attention(
    tiling: Tiling, back_end: Attention, spans: Sequence[Seen], window: int | None, causal: bool
) -> list[Tensor]:
    """Through pages of their own."""
    key, ends = spans[0].key, [len(span.key) for span in spans]
    stream = Stream("seen", key.shape[1], key.shape[2], key.dtype, window)
    pages, tables = Pages([stream], sum(stream.most_pages(end, end) for end in ends)), [empty_table() for _ in spans]
    for table, end in zip(tables, ends, strict=True):
        pages.extend(table, 0, end)
    whole = view_of(rows_of(places_of(ends), [0] * len(spans), sum(ends)), [0] * len(spans), ends, None)
    sides = (torch.cat([getattr(span, side) for span in spans]) for side in ("key", "value"))
    pages.write(stream, pages.find(tables, whole), whole, *sides)

    places = places_of([len(span.query) for span in spans])
    starts = [end - len(span.query) for end, span in zip(ends, spans, strict=True)]
    rows = rows_of(places, starts, tiling.ceil(places[-1].stop))
    view = view_of(rows, [stream.first(start) for start in starts], ends, window, causal=causal)
    parts = view.parts(*pages.gather(stream, pages.find(tables, view), view))
    seen = rows.attend(back_end, tiling.padded(torch.cat([span.query for span in spans])), parts)
    return [seen[place] for place in places]


@torch.inference_mode()
def run_recurrence(tiling: Tiling, spans: Sequence[Steps]) -> list[tuple[Tensor, Tensor]]:
    """One loop over kept and new tokens; where none is new, those to keep are new ones that are certain."""
    _, heads, key_dim = spans[0].query.shape
    net = DeltaNet(heads, heads, key_dim, spans[0].value.shape[2], 1)
    logged = [span.kept if span.kept < len(span.query) else 0 for span in spans]
    fresh = [len(span.query) - log for span, log in zip(spans, logged, strict=True)]
    certain = [span.kept - log for span, log in zip(spans, logged, strict=True)]
    replay, places = laid(tiling, fresh, certain, logged, 1)
    longest, kept, new = max(1, *logged), list[Tensor](), list[Tensor]()
    for span, log in zip(spans, logged, strict=True):
        mixed = span.value.new_zeros(len(span.value), net.channels)
        rows = Inputs(mixed, span.key, span.value, span.decay, span.beta).rows()
        kept.append(torch.cat([rows[:log], rows.new_zeros(longest - log, rows.shape[1])]))
        new.append(rows[log:])
    inputs = torch.cat([torch.cat(kept)[replay.kept], *new])
    query = torch.cat([span.query[log:] for span, log in zip(spans, logged, strict=True)])
    states = torch.stack([span.state for span in spans])

    def keep(slots: Tensor, found: Tensor) -> None:
        states[slots] = found

    begun = states[replay.slots]
    outputs = deltanet.recur(begun, tiling.padded(query), inputs, net, replay, keep)
    said = (outputs[place][sure:] for place, sure in zip(places, certain, strict=True))
    return list(zip(said, states.unbind(0), strict=True))


@torch.inference_mode()
def run_convolution(tiling: Tiling, spans: Sequence[Rows], taps: Tensor) -> list[Tensor]:
    lengths = [len(span.rows) for span in spans]
    replay, places = laid(tiling, lengths, [0] * len(spans), [0] * len(spans), taps.shape[1])
    histories = [spans[slot].history for slot in replay.slots.tolist()]
    rows = torch.cat([*histories, *(span.rows for span in spans)])
    found = deltanet.convolve(rows[replay.taps], taps.T.contiguous())
    return [found[place] for place in places]


@torch.inference_mode()
def run_block_convolution(tiling: Tiling, spans: Sequence[Slots], base: Tensor) -> list[Tensor]:
    places = places_of([len(span.rows) for span in spans])
    slots = torch.cat([torch.arange(len(span.rows)) for span in spans])
    groups = torch.unflatten(base, 1, (spans[0].dynamic.shape[2], -1))
    sides = (torch.cat([getattr(span, side) for span in spans]) for side in ("rows", "dynamic"))
    z, dynamic, at = (tiling.padded(side) for side in (*sides, slots))
    found = block.convolve(z, dynamic, groups, at)
    return [found[place] for place in places]


def places_of(lengths: Sequence[int]) -> list[slice]:
    """Where spans of these lengths lie behind each other."""
    return [slice(end - length, end) for length, end in zip(lengths, accumulate(lengths), strict=True)]


def laid(
    tiling: Tiling, fresh: Sequence[int], certain: Sequence[int], logged: Sequence[int], kernel: int
) -> tuple[Replay, list[slice]]:
    """The loop over samples with so many new tokens, the first of them certain, behind so many kept ones."""
    places = places_of(fresh)
    memories = [Memory({}, slot, 0, 0, log) for slot, log in enumerate(logged)]
    parts = zip(fresh, memories, certain, strict=True)
    spans = [Span((0,) * count, 0, memory, sure, 0) for count, memory, sure in parts]
    return replay_of(spans, places, kernel, max(1, *logged), tiling.ceil(places[-1].stop)), places
