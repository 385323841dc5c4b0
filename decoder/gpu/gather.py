"""The second launch of attention: each row adds the parts of the pieces that it sees, in their order."""

from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

from .audit import Case
from .pieces import LOWEST, Parts
from .spans import Spans

HEADS = 4  # that one program adds the pieces of
UNROLL = 4  # pieces whose loads are under way together


@triton.jit(do_not_specialize=["begin", "size", "pieces"])
def gather_kernel(
    found_ptr,
    best_ptr,
    mass_ptr,
    gate_ptr,
    gate_stride,
    out_ptr,
    first_ptr,
    start_ptr,
    begin,
    size,
    pieces,
    scale,
    ALL: tl.constexpr,
    DEPTH: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    OWN: tl.constexpr,
    GATED: tl.constexpr,
    PIECE: tl.constexpr,
    HEADS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    sample = tl.program_id(2)
    first, start = tl.load(first_ptr + sample), tl.load(start_ptr + sample)
    place = tl.maximum(begin - first, 0) + tl.program_id(0)
    if place < tl.minimum(begin + size, tl.load(first_ptr + sample + 1)) - first:
        row = (first + place).to(tl.int64)
        heads, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, DEPTH)
        real = heads < ALL
        low, end = 0, start
        if WINDOW > 0:
            low = tl.maximum(low, start + place + 1 - WINDOW)
        if not OWN:
            end = tl.load(first_ptr + sample + 1) - first + start
            if CAUSAL:
                end = start + place + 1
        best, mass = tl.full([HEADS], LOWEST, tl.float32), tl.zeros([HEADS], tl.float32)
        found, parts = tl.zeros([HEADS, DEPTH], tl.float32), ((row - begin) * ALL + heads) * pieces
        for base in range(low // (PIECE * UNROLL) * UNROLL, (end + PIECE - 1) // PIECE, UNROLL):
            for step in tl.static_range(UNROLL):
                piece = base + step
                there = real & (piece * PIECE + PIECE > low) & (piece * PIECE < end) & (low < end)
                best, mass, found = added(
                    best, mass, found, parts + piece, there, dims, best_ptr, mass_ptr, found_ptr, DEPTH
                )
        if OWN:
            best, mass, found = added(
                best, mass, found, parts + pieces - 1, real, dims, best_ptr, mass_ptr, found_ptr, DEPTH
            )
        said = found * (scale / tl.where(real, mass, 1.0))[:, None]
        at = heads[:, None] * DEPTH + dims[None, :]
        if GATED:
            gate = tl.load(gate_ptr + row * gate_stride + at, mask=real[:, None], other=0.0).to(tl.float32)
            said = said * tl.sigmoid(gate)
        tl.store(out_ptr + row * (ALL * DEPTH) + at, said.to(out_ptr.dtype.element_ty), mask=real[:, None])


@triton.jit
def added(best, mass, found, at, there, dims, best_ptr, mass_ptr, found_ptr, DEPTH: tl.constexpr):
    """One more part, added to what is known of some heads."""
    theirs = tl.load(best_ptr + at, mask=there, other=LOWEST)
    weighed = tl.load(mass_ptr + at, mask=there, other=0.0)
    part = tl.load(found_ptr + at[:, None] * DEPTH + dims[None, :], mask=there[:, None], other=0.0)
    higher = tl.maximum(best, theirs)
    fade, weight = tl.exp2(best - higher), tl.exp2(theirs - higher)
    return higher, mass * fade + weighed * weight, found * fade[:, None] + part * weight[:, None]


def gather(
    parts: Parts,
    out: Tensor,
    spans: Spans,
    *,
    begin: int,
    size: int,
    longest: int,
    pieces: int,
    piece: int,
    scale: float,
    window: int | None,
    causal: bool,
    own: bool,
    gate: Tensor | None,
) -> None:
    """Write to `out` [R, heads, d] what attention gives for `size` rows from `begin` on, of which no sample has more
    than `longest`. `scale` multiplies values; the rest is what the parts of `pieces` pieces of `piece` positions were
    made with."""
    _, heads, depth = out.shape
    gate_, gate_stride = (out, 0) if gate is None else (gate, gate.stride(0))
    gather_kernel[longest, triton.cdiv(heads, HEADS), len(spans.start)](
        *parts,
        gate_,
        gate_stride,
        out,
        *spans,
        begin,
        size,
        pieces,
        scale,
        heads,
        depth,
        window or 0,
        causal,
        own,
        gate is not None,
        piece,
        HEADS,
        UNROLL,
        num_warps=4,
        enable_fp_fusion=False,
    )


def gather_case(name: str, kind: str, heads: int, shared: Mapping[str, int]) -> Case:
    """The kernel as it is launched behind attention with `shared` constants, whose own rows have no gate."""
    signature = {
        **dict.fromkeys(("found_ptr", "best_ptr", "mass_ptr"), "*fp32:16"),
        **dict.fromkeys(("gate_ptr", "out_ptr"), f"*{kind}:16"),
        **dict.fromkeys(("first_ptr", "start_ptr"), "*i32:16"),
        "gate_stride": "i32:16",
        **dict.fromkeys(("begin", "size", "pieces"), "i32"),
        "scale": "fp32",
    }
    constants = {**shared, "ALL": heads, "GATED": not shared["OWN"], "HEADS": HEADS, "UNROLL": UNROLL}
    return Case(f"gather {name}", gather_kernel, signature, constants, 4, fusion=False)
