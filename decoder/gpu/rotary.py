"""Queries and keys made ready for attention: each head normed, if the model does that, and turned to its position."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case
from .native import rounded


@triton.jit
def rotary_kernel(
    x_ptr,
    gain_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    heads,
    width,
    turned,
    pitch,
    eps,
    WIDTH: tl.constexpr,
    NORMS: tl.constexpr,
):  # type: ignore[no-untyped-def]
    row, head, lane = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, WIDTH)
    real, half = lane < width, turned // 2
    partner = tl.where(lane < half, lane + half, lane - half)  # of the lanes that are turned
    partner = tl.where(lane < turned, partner, lane)
    source = x_ptr + row * pitch + head * width
    x = tl.load(source + lane, mask=real, other=0.0).to(tl.float32)
    other = tl.load(source + partner, mask=real, other=0.0).to(tl.float32)
    if NORMS:
        shrink = tl.rsqrt(tl.sum(x * x) / width + eps)
        kind = out_ptr.dtype.element_ty
        x = rounded(x * shrink * tl.load(gain_ptr + head * width + lane, mask=real, other=0.0), kind).to(tl.float32)
        gain = tl.load(gain_ptr + head * width + partner, mask=real, other=0.0)
        other = rounded(other * shrink * gain, kind).to(tl.float32)
    place = tl.load(positions_ptr + row).to(tl.int64) * half + lane % half
    cos = tl.load(cos_ptr + place, mask=lane < turned, other=1.0)
    sin = tl.load(sin_ptr + place, mask=lane < turned, other=0.0)
    found = x * cos + tl.where(lane < half, -other, other) * sin
    tl.store(out_ptr + (row * heads + head) * width + lane, rounded(found, out_ptr.dtype.element_ty), mask=real)


def rotate(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    gain: Tensor | None = None,
    eps: float = 0.0,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Turn heads x [R, heads, d], rotate-half, to positions [R] by tables [positions, turned / 2] of float32.

    Dimension i of the first `turned` ones is paired with i + turned / 2. With a gain [heads, d], float32, every head is
    first divided by its root mean square, multiplied by it, and rounded. The heads of a row lie behind each other.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    rows, heads, width = x.shape
    if rows:
        rotary_kernel[(rows, heads)](
            x,
            cos if gain is None else gain,
            positions,
            cos,
            sin,
            out,
            heads,
            width,
            2 * cos.shape[1],
            x.stride(0),
            eps,
            WIDTH=triton.next_power_of_2(width),
            NORMS=gain is not None,
            num_warps=1,
            enable_fp_fusion=False,
        )
    return out


def rotate_torch(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    gain: Tensor | None = None,
    eps: float = 0.0,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    exact, half = torch.promote_types(x.dtype, torch.float32), cos.shape[1]
    wide = x.to(exact)
    if gain is not None:
        wide = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * gain.to(exact)
        wide = wide.to(x.dtype).to(exact)
    first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    c, s = (table[positions.long(), None].to(exact) for table in (cos, sin))
    found = torch.cat([first * c - second * s, second * c + first * s, rest], dim=-1).to(x.dtype)
    return found if out is None else out.copy_(found)


AUDIT = tuple(
    Case(
        f"rotary {width}",
        rotary_kernel,
        {
            "x_ptr": "*bf16:16",
            "gain_ptr": "*fp32:16",
            "positions_ptr": "*i32:16",
            "cos_ptr": "*fp32:16",
            "sin_ptr": "*fp32:16",
            "out_ptr": "*bf16:16",
            "heads": "i32",
            "width": "i32:16",
            "turned": "i32:16",
            "pitch": "i32:16",
            "eps": "fp32",
        },
        {"WIDTH": width, "NORMS": True},
        warps=1,
        fusion=False,
    )
    for width in (128, 256)
)
