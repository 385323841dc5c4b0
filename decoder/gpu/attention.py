"""Softmax attention of spans over paged keys and values, in two launches: parts at fixed positions, then their sum.

A program reads one piece of the cached positions of one sample and key head, and answers for a few tiles of sixteen
queries. Pieces, and the steps within a piece, lie at fixed absolute positions; each tile goes through the same
instructions, however many there are; a step that a query does not see leaves its numbers as they are; and the pieces
are added in their order. So a row's bits depend on its position, on its query and on what it sees, and on nothing else.
"""

# In a kernel a tuple grows, one value for each tile.
# mypy: disable-error-code="assignment"

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..view import PAGE
from .audit import Case
from .codes import decoded
from .gather import gather, gather_case
from .native import product
from .pieces import LOWEST, QUERIES, block_of, cut_of, numbers_of, parts_of, pieces_of
from .spans import Spans
from .splits import Workspace, owned

LOG2E = 1.4426950408889634


@triton.jit(do_not_specialize=["table_stride", "begin", "size", "pieces"])  # none may decide how this is compiled
def attention_kernel(
    query_ptr,
    query_stride,
    cache_ptr,
    page_stride,
    table_ptr,
    table_stride,
    first_ptr,
    start_ptr,
    own_key_ptr,
    own_value_ptr,
    own_stride,
    found_ptr,
    best_ptr,
    mass_ptr,
    begin,
    size,
    pieces,
    scale,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    OWN: tl.constexpr,
    PIECE: tl.constexpr,
    STEP: tl.constexpr,
    TILES: tl.constexpr,
    QUERIES: tl.constexpr,
    PAGE: tl.constexpr,
):
    sample, head, piece = tl.program_id(2), tl.program_id(1) % KV_HEADS, tl.program_id(1) // KV_HEADS
    first, start = tl.load(first_ptr + sample), tl.load(start_ptr + sample)
    count = tl.load(first_ptr + sample + 1) - first
    skip, stop = tl.maximum(begin - first, 0), tl.minimum(begin + size - first, count)  # its rows in this block
    lane = skip * GROUP + tl.program_id(0) * (TILES * QUERIES)  # the first query, among those of sample and key head
    row = lane // GROUP
    low, end = piece * PIECE, start + count
    if OWN:
        end = start
    high = tl.minimum(low + PIECE, end)
    if WINDOW > 0:
        low = tl.maximum(low, start + row + 1 - WINDOW)
    if CAUSAL:  # nothing behind the last row of these tiles is seen
        high = tl.minimum(high, start + tl.minimum((lane + TILES * QUERIES - 1) // GROUP, stop - 1) + 1)
    keys_ptr, values_ptr, shift = cache_ptr, cache_ptr + KV_HEADS * PAGE * DEPTH, 0
    if OWN:  # noqa: SIM102 - a constant, and what follows is none
        if piece == pieces - 1:
            low, high = 0, count
            keys_ptr, values_ptr, shift = own_key_ptr, own_value_ptr, start
    if (row < stop) & (low < high):
        dims = tl.arange(0, DEPTH)
        rows, query, best, mass, found = (), (), (), (), ()
        for tile in tl.static_range(TILES):
            lanes = lane + tile * QUERIES + tl.arange(0, QUERIES)
            place = (first + lanes // GROUP).to(tl.int64) * query_stride + (head * GROUP + lanes % GROUP) * DEPTH
            real = lanes // GROUP < stop
            query += (tl.load(query_ptr + place[:, None] + dims[None, :], mask=real[:, None], other=0.0),)
            rows += (lanes // GROUP,)
            best += (tl.full([QUERIES], LOWEST, tl.float32),)
            mass += (tl.zeros([QUERIES], tl.float32),)
            found += (tl.zeros([QUERIES, DEPTH], tl.float32),)
        for base in range(low // STEP * STEP, high, STEP):
            keys = base + tl.arange(0, STEP)
            known = (keys >= low) & (keys < high)
            page = tl.load(table_ptr + sample.to(tl.int64) * table_stride + keys // PAGE, mask=known, other=0)
            at = page.to(tl.int64) * page_stride + (head * PAGE + keys % PAGE) * DEPTH
            if OWN:
                at = tl.where(piece == pieces - 1, (first + keys).to(tl.int64) * own_stride + head * DEPTH, at)
            key = tl.load(keys_ptr + at[:, None] + dims[None, :], mask=known[:, None], other=0.0)
            value = tl.load(values_ptr + at[:, None] + dims[None, :], mask=known[:, None], other=0.0)
            key, value = decoded(key, query_ptr.dtype.element_ty), decoded(value, query_ptr.dtype.element_ty)
            next_best, next_mass, next_found = (), (), ()
            for tile in tl.static_range(TILES):
                away = (start + rows[tile])[:, None] - (shift + keys)[None, :]
                seen = tl.broadcast_to(known[None, :], [QUERIES, STEP])
                if CAUSAL:
                    seen = seen & (away >= 0)
                if WINDOW > 0:
                    seen = seen & (tl.abs(away) < WINDOW)
                score = product(query[tile], tl.trans(key), tl.zeros([QUERIES, STEP], tl.float32), "ieee")
                score = tl.where(seen, score * scale, LOWEST)
                higher = tl.maximum(best[tile], tl.max(score, 1))
                weight = tl.where(seen, tl.exp2(score - higher[:, None]), 0.0)
                fade = tl.exp2(best[tile] - higher)
                next_best += (higher,)
                next_mass += (mass[tile] * fade + tl.sum(weight, 1),)
                faded = found[tile] * fade[:, None]
                next_found += (product(weight.to(value.dtype), value, faded, "ieee"),)
            best, mass, found = next_best, next_mass, next_found
        for tile in tl.static_range(TILES):
            lanes = lane + tile * QUERIES + tl.arange(0, QUERIES)
            real = lanes // GROUP < stop
            place = (first - begin + lanes // GROUP).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + lanes % GROUP
            place = place * pieces + piece
            tl.store(found_ptr + place[:, None] * DEPTH + dims[None, :], found[tile], mask=real[:, None])
            tl.store(best_ptr + place, best[tile], mask=real)
            tl.store(mass_ptr + place, mass[tile], mask=real)


def attention(
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
    """Attend from query [R, heads, d] to the cached rows of each sample, scores scaled by d^-0.5: [R, heads, d].

    `cache` [pages, numbers of a page] holds, in the dtype of queries or as e4m3 codes, the pages of the decoder's pool:
    keys [kv_heads, 16, d], then values; `scales` are what their codes are multiplied by. `table` [B, width] int32 is
    the page of each sixteen positions. A sample has at most `most` rows, whose keys and values are in the cache
    already; or `own` [R, kv_heads, d] of both, which nobody keeps, stand in for them. A row sees positions less than
    `window` away, and if `causal` none behind itself. `gate` [R, heads * d], which may be part of wider rows,
    multiplies the result by its sigmoid. d is a power of two, heads of at least 16 dimensions.
    """
    rows, heads, depth = query.shape
    cut, group = cut_of(depth, query.element_size(), cache.element_size()), heads // kv_heads
    pieces = pieces_of(table.shape[1], cut, own is not None)
    tiles = min(cut.tiles, triton.cdiv(most * group, QUERIES))
    size = min(rows, block_of(heads, depth, pieces, max(1, cut.tiles * QUERIES // group)))
    workspace = workspace or owned(query.device, numbers_of(size, heads, depth, pieces))
    parts = parts_of(workspace, size, heads, depth, pieces)
    out = torch.empty(rows, heads, depth, dtype=query.dtype, device=query.device) if out is None else out
    own_key, own_value = (query, query) if own is None else own
    key_scale, value_scale = scales
    longest = min(most, size)  # rows that one sample has in a block
    for begin in range(0, rows, max(1, size)):
        attention_kernel[triton.cdiv(longest * group, tiles * QUERIES), pieces * kv_heads, len(spans.start)](
            query,
            query.stride(0),
            cache,
            cache.stride(0),
            table,
            table.stride(0),
            *spans,
            own_key,
            own_value,
            own_key.stride(0),
            *parts,
            begin,
            size,
            pieces,
            depth**-0.5 * key_scale * LOG2E,
            group,
            kv_heads,
            depth,
            window or 0,
            causal,
            own is not None,
            cut.piece,
            cut.step,
            tiles,
            QUERIES,
            PAGE,
            num_warps=cut.warps,
            num_stages=cut.stages,
            enable_fp_fusion=False,
        )
        gather(
            parts,
            out,
            spans,
            begin=begin,
            size=size,
            longest=longest,
            pieces=pieces,
            piece=cut.piece,
            scale=value_scale,
            window=window,
            causal=causal,
            own=own is not None,
            gate=gate,
        )
    return out


def attention_torch(
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
    """The same, one sample after the other, in float64."""
    _, heads, depth = query.shape
    out = torch.empty_like(query, memory_format=torch.contiguous_format) if out is None else out
    firsts, exact = spans.first.tolist(), torch.float64
    for sample, (first, last, start) in enumerate(zip(firsts, firsts[1:], spans.start.tolist(), strict=False)):
        if first == last:
            continue
        end = start if own is not None else start + last - first
        positions = torch.arange(end, device=query.device)
        pages = cache[table[sample, positions // PAGE].long(), : 2 * kv_heads * PAGE * depth]
        sides = pages.to(exact).view(end, 2, kv_heads, PAGE, depth)[torch.arange(end), :, :, positions % PAGE]
        key, value = (sides[:, side] * scale for side, scale in enumerate(scales))
        if own is not None:
            key, value = (torch.cat([x, mine[first:last].to(exact)]) for x, mine in zip((key, value), own, strict=True))
        places = torch.arange(start + last - first, device=query.device)
        away = places[start:, None] - places
        seen = away >= 0 if causal else torch.ones_like(away, dtype=torch.bool)
        if window is not None:
            seen &= away.abs() < window
        key, value = (side.repeat_interleave(heads // kv_heads, dim=1) for side in (key, value))
        scores = torch.einsum("rhd,khd->hrk", query[first:last].to(exact), key) * depth**-0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        found = torch.einsum("hrk,khd->rhd", weights, value.masked_fill(~seen.any(0)[:, None, None], 0.0))
        if gate is not None:
            found = found * gate[first:last].to(exact).sigmoid().view(found.shape)
        out[first:last] = found.to(out.dtype)
    return out


def cases(kind: str, cached: str, heads: int, kv_heads: int, depth: int, own: bool) -> tuple[Case, ...]:
    """The two kernels as they are launched, for every number of tiles."""
    sizes = {"bf16": 2, "fp8e4nv": 1, "fp32": 4}
    cut, group = cut_of(depth, sizes[kind], sizes[cached]), heads // kv_heads
    name = f"{kind} over {cached} {heads}/{kv_heads}x{depth}{' own' * own}"
    signature = {
        **dict.fromkeys(("query_ptr", "own_key_ptr", "own_value_ptr"), f"*{kind}:16"),
        "cache_ptr": f"*{cached}:16",
        **dict.fromkeys(("found_ptr", "best_ptr", "mass_ptr"), "*fp32:16"),
        **dict.fromkeys(("table_ptr", "first_ptr", "start_ptr"), "*i32:16"),
        **dict.fromkeys(("query_stride", "page_stride", "own_stride"), "i32:16"),
        **dict.fromkeys(("table_stride", "begin", "size", "pieces"), "i32"),
        "scale": "fp32",
    }
    shared = {"DEPTH": depth, "WINDOW": 2048 * own, "CAUSAL": not own, "OWN": own, "PIECE": cut.piece}
    sized = shared | {"GROUP": group, "KV_HEADS": kv_heads, "STEP": cut.step, "QUERIES": QUERIES, "PAGE": PAGE}

    def tiled(tiles: int) -> Case:
        constants = sized | {"TILES": tiles}
        title = f"attention {name}, {tiles} tiles"
        return Case(title, attention_kernel, signature, constants, cut.warps, cut.stages, False)

    return (*(tiled(tiles) for tiles in range(1, cut.tiles + 1)), gather_case(name, kind, heads, shared))


AUDIT = (
    *cases("bf16", "bf16", 24, 4, 256, False),
    *cases("bf16", "fp8e4nv", 24, 4, 256, False),
    *cases("bf16", "bf16", 32, 8, 128, True),
    *cases("bf16", "fp8e4nv", 32, 8, 128, False),
    *cases("fp32", "fp32", 24, 4, 256, False),
)
