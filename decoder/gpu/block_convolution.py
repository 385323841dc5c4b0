"""The grouped dynamic causal convolution over the rows of drafted blocks, with the residual sum where one follows."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case

COLUMNS = 1024  # of a program
WARPS = 4


@triton.jit
def block_convolution_kernel(
    z_ptr,
    z_stride,
    dynamic_ptr,
    dynamic_stride,
    base_ptr,
    residual_ptr,
    out_ptr,
    first_ptr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    TAPS: tl.constexpr,
    ADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    slot, sample = tl.program_id(1), tl.program_id(2)
    first = tl.load(first_ptr + sample)
    if slot < tl.load(first_ptr + sample + 1) - first:
        row = (first + slot).to(tl.int64)
        columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        real = columns < WIDTH
        total = tl.zeros([COLUMNS], tl.float32)
        for tap in tl.static_range(TAPS):
            dynamic = tl.load(
                dynamic_ptr + row * dynamic_stride + tap * (WIDTH // GROUP) + columns // GROUP, mask=real, other=0.0
            )
            kernel = tl.load(base_ptr + tap * WIDTH + columns, mask=real, other=0.0).to(tl.float32)
            z = tl.load(z_ptr + (row - tap) * z_stride + columns, mask=real & (slot >= tap), other=0.0)
            total += (kernel + dynamic.to(tl.float32)) * z.to(tl.float32)
        if ADDED:
            total += tl.load(residual_ptr + row * WIDTH + columns, mask=real, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * WIDTH + columns, total.to(out_ptr.dtype.element_ty), mask=real)


def block_convolution(
    z: Tensor,
    dynamic: Tensor,
    base: Tensor,
    first: Tensor,
    *,
    most: int,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Rows z [R, H] of blocks of at most `most` rows, block b from row first[b] to first[b + 1], to [R, H].

    Row i, channel c is the sum over taps t of (base[t, c] + dynamic[i, t, c // group]) * z[i - t, c]; nothing enters a
    block from in front of it. `dynamic` [R, taps, groups] may be part of wider rows; `base` [taps, H] is float32.
    `residual` [R, H] is added before the only rounding.
    """
    rows, width = z.shape
    _, taps, groups = dynamic.shape
    out = torch.empty(rows, width, dtype=z.dtype, device=z.device) if out is None else out
    block_convolution_kernel[triton.cdiv(width, COLUMNS), most, len(first) - 1](
        z,
        z.stride(0),
        dynamic,
        dynamic.stride(0),
        base,
        z if residual is None else residual,
        out,
        first,
        width,
        width // groups,
        taps,
        residual is not None,
        COLUMNS,
        num_warps=WARPS,
        enable_fp_fusion=False,
    )
    return out


def block_convolution_torch(
    z: Tensor,
    dynamic: Tensor,
    base: Tensor,
    first: Tensor,
    *,
    most: int,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The same in float64, rounded once."""
    group, exact = z.shape[1] // dynamic.shape[2], z.double()
    kernel = base.double() + dynamic.double().repeat_interleave(group, dim=2)
    blocks = list[Tensor]()
    for begin, end in zip(first.tolist(), first.tolist()[1:], strict=False):
        total = torch.zeros_like(exact[begin:end])
        for tap in range(min(len(base), end - begin)):
            total[tap:] += kernel[begin + tap : end, tap] * exact[begin : end - tap]
        blocks.append(total)
    found = torch.cat(blocks) + (0.0 if residual is None else residual[: int(first[-1])].double())
    return found.to(z.dtype) if out is None else out.copy_(found)


def case(kind: str, width: int, group: int, taps: int, added: bool) -> Case:
    """One kernel as it is launched, with or without a residual."""
    signature = {f"{name}_ptr": f"*{kind}:16" for name in ("z", "dynamic", "residual", "out")}
    signature |= {"base_ptr": "*fp32:16", "first_ptr": "*i32:16", "z_stride": "i32:16", "dynamic_stride": "i32:16"}
    constants = {"WIDTH": width, "GROUP": group, "TAPS": taps, "ADDED": added, "COLUMNS": COLUMNS}
    name = f"block convolution {kind} {width}{', residual' * added}"
    return Case(name, block_convolution_kernel, signature, constants, WARPS, fusion=False)


AUDIT = tuple(case("bf16", width, 16, 2, added) for width in (5120, 2560) for added in (False, True))
