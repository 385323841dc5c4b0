"""Root-mean-square norms of whole rows, with the residual sum in front of them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case


@triton.jit
def norm_kernel(
    x_ptr, add_ptr, gain_ptr, out_ptr, total_ptr, width, pitch, eps, WIDTH: tl.constexpr, ADDS: tl.constexpr
):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    real = lane < width
    x = tl.load(x_ptr + row * pitch + lane, mask=real, other=0.0).to(tl.float32)
    gain = tl.load(gain_ptr + lane, mask=real, other=0.0)  # under way while the sum is made
    if ADDS:
        x += tl.load(add_ptr + row * width + lane, mask=real, other=0.0).to(tl.float32)
        total = x.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * width + lane, total, mask=real)
        x = total.to(tl.float32)
    shrink = tl.rsqrt(tl.sum(x * x) / width + eps)
    tl.store(out_ptr + row * width + lane, (x * shrink * gain).to(out_ptr.dtype.element_ty), mask=real)


def rms_norm(
    x: Tensor,
    gain: Tensor,
    eps: float,
    add: Tensor | None = None,
    *,
    out: Tensor | None = None,
    total: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalise rows x + add [R, H] and multiply by a gain [H], float32: w, or 1 + w. Returns that and the sum.

    The sum is rounded to x's dtype before it is normed, and without `add` it is x itself.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    if add is not None and total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    sums = x if add is None or total is None else total
    if len(x):
        norm_kernel[(len(x),)](
            x,
            x if add is None else add,
            gain,
            out,
            sums,
            x.shape[1],
            x.stride(0),
            eps,
            WIDTH=triton.next_power_of_2(x.shape[1]),
            ADDS=add is not None,
            num_warps=warps_of(x.shape[1]),
        )
    return out, sums


def warps_of(width: int) -> int:
    """By the width alone: it decides the order of a sum."""
    return 8 if width > 2048 else 4


def rms_norm_torch(
    x: Tensor,
    gain: Tensor,
    eps: float,
    add: Tensor | None = None,
    *,
    out: Tensor | None = None,
    total: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    exact = torch.promote_types(x.dtype, torch.float32)
    sums = x if add is None else (x.to(exact) + add.to(exact)).to(x.dtype)
    wide = sums.to(exact)
    found = (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * gain.to(exact)).to(x.dtype)
    if total is not None and add is not None:
        sums = total.copy_(sums)
    return (found if out is None else out.copy_(found)), sums


AUDIT = tuple(
    Case(
        f"norm {width}{' with residual' if adds else ''}",
        norm_kernel,
        {
            "x_ptr": "*bf16:16",
            "add_ptr": "*bf16:16",
            "gain_ptr": "*fp32:16",
            "out_ptr": "*bf16:16",
            "total_ptr": "*bf16:16",
            "width": "i32:16",
            "pitch": "i32:16",
            "eps": "fp32",
        },
        {"WIDTH": triton.next_power_of_2(width), "ADDS": adds},
        warps=warps_of(width),
    )
    for width in (2560, 5120)
    for adds in (False, True)
)
