"""Attention and what stands around it, at the sizes of the 27B target and its drafter, behind 4,000 tokens."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specqual.decoder.arithmetic import Turns
from specqual.decoder.gpu.attention import attention_torch
from specqual.decoder.gpu.attention_backends import BACK_ENDS, present
from specqual.decoder.gpu.block_convolution import block_convolution, block_convolution_torch
from specqual.decoder.gpu.heads import Place, heads, heads_torch
from specqual.decoder.gpu.splits import of_size
from specqual.decoder.view import PAGE

from .bench import Bench, Trial, error
from .samples import KEPT, noise, spans_of

START, WIDTH = 4000, 256  # tokens, and pages of a table
E4M3 = torch.float8_e4m3fn
POOLS: dict[tuple[int, torch.dtype], Tensor] = {}


def pool(numbers: int, dtype: torch.dtype) -> Tensor:
    """Pages of so many numbers, one pool at a time, more of them than any cache holds."""
    if (numbers, dtype) not in POOLS:
        POOLS.clear()
        count = max(16 * WIDTH, KEPT // (numbers * dtype.itemsize)) + 1
        source = torch.Generator("cuda").manual_seed(3)
        pages = torch.empty(count, numbers, dtype=dtype, device="cuda")
        for page in range(count):
            pages[page] = torch.randn(numbers, device="cuda", generator=source).to(dtype)
        POOLS[numbers, dtype] = pages
    return POOLS[numbers, dtype]


def attention_trial(
    back_end: str, rows: int, each: int, shape: tuple[int, int, int, torch.dtype, int | None, bool]
) -> Trial:
    """Of `shape`: heads, key heads, their size, what the cache holds, the window, and whether a block is drafted."""
    count, kv_heads, depth, cached, window, own = shape
    spans, cache = spans_of(rows, each, START), pool(2 * kv_heads * PAGE * depth, cached)
    samples, query = len(spans.start), noise(1, rows, count, depth)
    copies = max(1, (len(cache) - 1) // (samples * WIDTH))
    pages = torch.arange(copies * samples * WIDTH, dtype=torch.int32, device="cuda") % (len(cache) - 1) + 1
    tables = pages.view(copies, samples, WIDTH)
    sides = noise(2, rows, 2, kv_heads, depth).unbind(1) if own else None
    mine = None if sides is None else (sides[0].contiguous(), sides[1].contiguous())
    gate, scales = None if own else noise(3, rows, count * depth), (0.5, 0.25) if cached is E4M3 else (1.0, 1.0)
    run = partial(
        BACK_ENDS[back_end], query, cache, spans=spans, kv_heads=kv_heads, scales=scales, window=window, causal=not own,
        own=mine, gate=gate, most=min(rows, each), workspace=of_size(query.device),
        out=torch.empty_like(query),
    )  # fmt: skip

    def exact(found: Tensor) -> float:
        part = min(rows, each)
        few = spans_of(part, each, START)  # the first sample says it all
        first = None if mine is None else (mine[0][:part], mine[1][:part])
        theirs = attention_torch(
            query[:part].double(), cache, tables[0, :1], few, most=part, kv_heads=kv_heads, scales=scales,
            window=window, causal=not own, own=first, gate=None if gate is None else gate[:part],
        )  # fmt: skip
        return error(found[:part], theirs, 2**-6)

    seen = START if window is None else window
    moved = samples * seen * 2 * kv_heads * depth * cached.itemsize + rows * count * depth * (4 if own else 6)
    return Trial(lambda i: run(table=tables[i]), exact, moved, 4.0 * rows * count * depth * seen, copies)


def heads_trial(rows: int) -> Trial:
    count, kv_heads, depth, half = 24, 4, 256, 32
    spans, cache = spans_of(rows, 8, START), torch.zeros(16 * WIDTH + 1, 2 * kv_heads * PAGE * depth, device="cuda")
    cache = cache.to(E4M3)
    x, samples = noise(1, rows, (count + 2 * kv_heads) * depth), len(spans.start)
    query, key, value = x.split([count * depth, kv_heads * depth, kv_heads * depth], dim=1)
    gains = noise(2, depth, dtype=torch.float32), noise(3, depth, dtype=torch.float32)
    angles = torch.arange(START + 64, device="cuda")[:, None] * 0.01 ** torch.linspace(0, 1, half, device="cuda")
    turns = Turns(angles.cos(), angles.sin())
    table = torch.arange(1, samples * WIDTH + 1, dtype=torch.int32, device="cuda").view(samples, WIDTH)
    place, out = Place(cache, table, (0.5, 0.25)), torch.empty(rows, count, depth, dtype=x.dtype, device="cuda")
    arguments = (query, key, value, gains, turns, 1e-6, spans)

    def exact(found: Tensor) -> float:
        twin = Place(torch.zeros_like(cache), table, place.scales)
        theirs, *_ = heads_torch(*arguments, most=min(rows, 8), depth=depth, place=twin)
        return max(error(found, theirs, 2**-7), error(cache.float(), twin.cache.float(), 2**-4))

    options = {"most": min(rows, 8), "depth": depth}
    run = partial(heads, *arguments, place=place, out=(out, key, value))
    return Trial(lambda i: run(**options)[0], exact, rows * depth * (4 * count + 6 * kv_heads))


def block_convolution_trial(rows: int) -> Trial:
    width, groups, taps = 5120, 320, 2
    first, z, residual = spans_of(rows, 8, 0).first, noise(1, rows, width), noise(2, rows, width)
    dynamic, base = noise(3, rows, 2, taps, groups)[:, 1], noise(4, taps, width, dtype=torch.float32)
    out, most = torch.empty_like(z), min(rows, 8)

    def exact(found: Tensor) -> float:
        theirs = block_convolution_torch(z, dynamic, base, first, most=most, residual=residual.double())
        return error(found, theirs, 2**-7)

    run = partial(block_convolution, z, dynamic, base, first, most=most, residual=residual, out=out)
    return Trial(lambda i: run(), exact, rows * (6 * width + 2 * taps * groups))


def attention_bench(name: str, each: int, *shape: Any, rows: tuple[int, ...], back_end: str = "own") -> Bench:
    """A row of a drafted block sees all others, so there only whole blocks are alike; a library promises nothing."""
    alike = tuple(range(each, 121, each)) if shape[-1] else (*range(1, 18), 33, 64, 100)
    told = f"attention {name}, spans of {each}" + f", by {back_end}" * (back_end != "own")
    make = partial(attention_trial, back_end, each=each, shape=shape)
    return Bench(told, make, rows, alike if back_end == "own" else ())


def by_libraries() -> Iterator[Bench]:
    """The same by every other back end that can run here: what gathering pages and their order of sums cost."""
    for back_end in present(torch.device("cuda"), torch.bfloat16)[1:]:
        for name, shape in (
            ("27B fp8", (*TARGET, E4M3, None, False)),
            ("27B bf16", (*TARGET, torch.bfloat16, None, False)),
            ("27B drafter", DRAFT),
        ):
            yield attention_bench(name, 8, *shape, rows=(8, 120), back_end=back_end)


TARGET, DRAFT = (24, 4, 256), (32, 8, 128, torch.bfloat16, 2048, True)
BENCH = (
    attention_bench("27B fp8", 1, *TARGET, E4M3, None, False, rows=(1, 15)),
    attention_bench("27B fp8", 8, *TARGET, E4M3, None, False, rows=(8, 120)),
    attention_bench("27B fp8", 16, *TARGET, E4M3, None, False, rows=(16,)),
    attention_bench("27B bf16", 8, *TARGET, torch.bfloat16, None, False, rows=(8, 120)),
    attention_bench("27B drafter", 8, *DRAFT, rows=(8, 120)),
    *by_libraries(),
    Bench("heads 27B to fp8", heads_trial),
    Bench("block convolution 5120 with residual", block_convolution_trial),
)
