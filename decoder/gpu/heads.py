"""From projected rows to what attention reads, in one launch: the norm of each head, the rotation, and the write into
the cache, rounded to what it holds.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..arithmetic import Turns as Turns
from ..formats import LARGEST
from ..view import PAGE
from .audit import Case
from .spans import Spans

WARPS = 1
MOST = tl.constexpr(LARGEST)  # of e4m3


class Place(NamedTuple):
    """Where keys and values go: pages as attention reads them; `scales` are what codes are divided by."""

    cache: Tensor
    table: Tensor
    scales: tuple[float, float] = (1.0, 1.0)


@triton.jit(do_not_specialize=["table_stride"])
def heads_kernel(
    query_ptr,
    query_stride,
    key_ptr,
    key_stride,
    value_ptr,
    value_stride,
    query_gain_ptr,
    key_gain_ptr,
    cos_ptr,
    sin_ptr,
    eps,
    query_out_ptr,
    key_out_ptr,
    value_out_ptr,
    page_stride,
    table_ptr,
    table_stride,
    key_scale,
    value_scale,
    first_ptr,
    start_ptr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    HALF: tl.constexpr,
    NORMED: tl.constexpr,
    PAGED: tl.constexpr,
    PAGE: tl.constexpr,
):
    head, place, sample = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, start = tl.load(first_ptr + sample), tl.load(start_ptr + sample)
    if place < tl.load(first_ptr + sample + 1) - first:
        dims = tl.arange(0, DEPTH)
        row, position = (first + place).to(tl.int64), start + place
        if PAGED:
            page = tl.load(table_ptr + sample.to(tl.int64) * table_stride + position // PAGE).to(tl.int64)
        if head < HEADS:
            x_ptr = query_ptr + row * query_stride + head * DEPTH
            found = turned(x_ptr, query_gain_ptr, cos_ptr, sin_ptr, position, eps, dims, DEPTH, HALF, NORMED)
            out = query_out_ptr + (row * HEADS + head) * DEPTH + dims
            tl.store(out, found.to(query_out_ptr.dtype.element_ty))
        elif head < HEADS + KV_HEADS:
            head -= HEADS
            x_ptr = key_ptr + row * key_stride + head * DEPTH
            found = turned(x_ptr, key_gain_ptr, cos_ptr, sin_ptr, position, eps, dims, DEPTH, HALF, NORMED)
            if PAGED:
                at = page * page_stride + (head * PAGE + position % PAGE) * DEPTH
            else:
                at = (row * KV_HEADS + head) * DEPTH
            store(key_out_ptr + at + dims, found, key_scale)
        else:
            head -= HEADS + KV_HEADS
            found = tl.load(value_ptr + row * value_stride + head * DEPTH + dims).to(tl.float32)
            if PAGED:
                at = page * page_stride + ((KV_HEADS + head) * PAGE + position % PAGE) * DEPTH
            else:
                at = (row * KV_HEADS + head) * DEPTH
            store(value_out_ptr + at + dims, found, value_scale)


@triton.jit
def turned(
    x_ptr,
    gain_ptr,
    cos_ptr,
    sin_ptr,
    position,
    eps,
    dims,
    DEPTH: tl.constexpr,
    HALF: tl.constexpr,
    NORMED: tl.constexpr,
):
    """A head, normed, its leading dimensions turned in pairs i and i + HALF."""
    pair = tl.where(dims < HALF, dims + HALF, tl.where(dims < 2 * HALF, dims - HALF, dims))
    x, other = tl.load(x_ptr + dims).to(tl.float32), tl.load(x_ptr + pair).to(tl.float32)
    if NORMED:
        shrink = tl.rsqrt(tl.sum(x * x, 0) / DEPTH + eps)
        x, other = x * shrink * tl.load(gain_ptr + dims), other * shrink * tl.load(gain_ptr + pair)
    angle = position.to(tl.int64) * HALF + dims % HALF
    cos = tl.load(cos_ptr + angle, mask=dims < 2 * HALF, other=1.0)
    sin = tl.load(sin_ptr + angle, mask=dims < 2 * HALF, other=0.0)
    return x * cos + tl.where(dims < HALF, -other, other) * sin


@triton.jit
def store(out_ptr, x, scale):
    """Round once to what the place holds; codes saturate."""
    if out_ptr.dtype.element_ty == tl.float8e4nv:
        x = tl.div_rn(x, tl.zeros_like(x) + scale)
        x = tl.minimum(tl.maximum(x, -MOST), MOST)
    tl.store(out_ptr, x.to(out_ptr.dtype.element_ty))


def heads(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    gains: tuple[Tensor, Tensor] | None,
    turns: Turns,
    eps: float,
    spans: Spans,
    *,
    most: int,
    depth: int,
    place: Place | None = None,
    out: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [R, heads * d] or None, keys and values [R, kv_heads * d], which may be parts of wider rows.

    Row i of a sample stands at its start + i; a sample has at most `most` rows. `turns` are float32, and so are `gains`
    [d] of queries and keys, or None where heads are not normed. With a `place`, keys and values go there and nowhere
    else. Returns queries [R, heads, d], keys and values [R, kv_heads, d] (or, with a place, what was given). d is a
    power of two.
    """
    rows, kv_heads = len(key), key.shape[1] // depth
    count = 0 if query is None else query.shape[1] // depth
    query_ = key if query is None else query
    if out is None:
        shape = (rows, kv_heads, depth)
        sides = (key, value) if place is not None else (key.new_empty(shape), value.new_empty(shape))
        out = query_.new_empty(rows, count, depth), *sides
    query_gain, key_gain = (turns.cos, turns.cos) if gains is None else gains
    cache, table, scales = (key, spans.first[None], (1.0, 1.0)) if place is None else place
    goal = (out[1], out[2]) if place is None else (cache, cache)
    heads_kernel[count + 2 * kv_heads, most, len(spans.start)](
        query_,
        query_.stride(0),
        key,
        key.stride(0),
        value,
        value.stride(0),
        query_gain,
        key_gain,
        turns.cos,
        turns.sin,
        eps,
        out[0],
        *goal,
        cache.stride(0),
        table,
        table.stride(0),
        *scales,
        *spans,
        count,
        kv_heads,
        depth,
        turns.cos.shape[1],
        gains is not None,
        place is not None,
        PAGE,
        num_warps=WARPS,
        enable_fp_fusion=False,
    )
    return out


def heads_torch(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    gains: tuple[Tensor, Tensor] | None,
    turns: Turns,
    eps: float,
    spans: Spans,
    *,
    most: int,
    depth: int,
    place: Place | None = None,
    out: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in float64, rounded once."""
    counts = spans.first.diff()
    owners = torch.arange(len(counts), device=key.device).repeat_interleave(counts)
    positions = torch.arange(int(spans.first[-1]), device=key.device) - spans.first[owners] + spans.start[owners]
    rows = len(positions)

    def turned(x: Tensor, gain: Tensor | None) -> Tensor:
        x = x[:rows].unflatten(1, (-1, depth)).double()
        if gain is not None:
            x = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain.double()
        half = turns.cos.shape[1]
        cos, sin = (side[positions, None].double() for side in (turns.cos, turns.sin))
        first, second = x[..., :half], x[..., half : 2 * half]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, x[..., 2 * half :]], dim=-1)

    query_gain, key_gain = (None, None) if gains is None else gains
    asked = turned(key[:, :0] if query is None else query, query_gain).to(key.dtype)
    sides = turned(key, key_gain), value[:rows].unflatten(1, (-1, depth)).double()
    if place is None:
        found = asked, sides[0].to(key.dtype), sides[1].to(value.dtype)
        return found if out is None else (out[0].copy_(found[0]), out[1].copy_(found[1]), out[2].copy_(found[2]))
    kv_heads = key.shape[1] // depth
    pages = place.table[owners, positions // PAGE].long()
    view = place.cache[:, : 2 * kv_heads * PAGE * depth].view(-1, 2, kv_heads, PAGE, depth)
    for side, (x, scale) in enumerate(zip(sides, place.scales, strict=True)):
        if place.cache.dtype == torch.float8_e4m3fn:
            x = (x / scale).clamp(-LARGEST, LARGEST)
        view[pages, side, :, positions % PAGE] = x.float().to(place.cache.dtype)
    return (asked if out is None else out[0].copy_(asked)), key, value


def case(kind: str, cached: str | None, count: int, kv_heads: int, depth: int, half: int) -> Case:
    """One kernel as it is launched: into a cache of some kind, or None."""
    pointers = "query_ptr key_ptr value_ptr query_out_ptr".split()
    signature = {name: f"*{kind}:16" for name in pointers}
    signature |= dict.fromkeys(("query_gain_ptr", "key_gain_ptr", "cos_ptr", "sin_ptr"), "*fp32:16")
    signature |= dict.fromkeys(("table_ptr", "first_ptr", "start_ptr"), "*i32:16")
    signature |= dict.fromkeys(("query_stride", "key_stride", "value_stride", "page_stride"), "i32:16")
    signature |= dict.fromkeys(("key_scale", "value_scale", "eps"), "fp32") | {"table_stride": "i32"}
    signature |= dict.fromkeys(("key_out_ptr", "value_out_ptr"), f"*{cached or kind}:16")
    constants = {
        "HEADS": count,
        "KV_HEADS": kv_heads,
        "DEPTH": depth,
        "HALF": half,
        "NORMED": True,
        "PAGED": cached is not None,
        "PAGE": PAGE,
    }
    name = f"heads {kind} to {cached or 'rows'} {count}/{kv_heads}x{depth}"
    return Case(name, heads_kernel, signature, constants, WARPS, fusion=False)


AUDIT = (
    case("bf16", "fp8e4nv", 24, 4, 256, 32),
    case("bf16", "bf16", 24, 4, 256, 32),
    case("bf16", None, 32, 8, 128, 64),
    case("bf16", "bf16", 0, 8, 128, 64),
    case("bf16", "fp8e4nv", 32, 8, 128, 64),
)
