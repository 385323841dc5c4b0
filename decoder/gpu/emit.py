"""The end of every linear kernel: parts of the inputs added in their order, then scale, bias, rounding and store."""

import triton
import triton.language as tl


@triton.jit
def per_output(ptr, outputs, M: tl.constexpr):
    """What a program's outputs have one of each, [M] float32: read in front of a product, it is there behind it."""
    output = tl.program_id(0) * M + tl.arange(0, M)
    return tl.load(ptr + output, mask=output < outputs, other=0.0).to(tl.float32)


@triton.jit
def emit(
    acc,
    scale,
    bias,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    rows,
    outputs,
    M: tl.constexpr,
    N: tl.constexpr,
    SPLITS: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
):
    """Write acc [M, N], the products of M outputs and N rows, with scale and bias [M], to out [rows, outputs].

    With more than one split, each program leaves its part, and the one that finds all others there adds them up: in
    their order, so nothing depends on who came last. `arrived` counts per tile and is left at zero.
    """
    tile, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m, n = tl.arange(0, M), tl.arange(0, N)
    row = block * N + n
    live, last = row[None, :] < rows, True
    UNROLL: tl.constexpr = 2 if M * N <= 1024 else 1  # more would take registers from the product
    if SPLITS > 1:
        place = block.to(tl.int64) * tl.num_programs(0) + tile
        part = parts_ptr + place * (SPLITS * M * N) + n[None, :] * M + m[:, None]
        tl.store(part + split * (M * N), acc, mask=live)
        tl.debug_barrier()
        last = tl.atomic_add(arrived_ptr + place, 1, sem="acq_rel") == SPLITS - 1
    if last:
        if SPLITS > 1:
            tl.debug_barrier()
            acc = tl.load(part, mask=live, other=0.0, cache_modifier=".cg")
            for other in tl.range(1, SPLITS, loop_unroll_factor=UNROLL):  # so that loads are under way together
                acc += tl.load(part + other * (M * N), mask=live, other=0.0, cache_modifier=".cg")
            tl.store(arrived_ptr + place, 0)
        output = tile * M + m
        real = output < outputs
        if SCALED:
            acc *= scale[:, None]
        if BIASED:
            acc += bias[:, None]
        where = row[None, :].to(tl.int64) * outputs + output[:, None]
        tl.store(out_ptr + where, acc.to(out_ptr.dtype.element_ty), mask=real[:, None] & live)
