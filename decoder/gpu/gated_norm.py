"""The delta-net's way out: what each head read, by its root mean square, times a weight and silu of a gate."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import silu

from .audit import Case

HEADS = 8  # of a program
WARPS = 4


@triton.jit
def gated_norm_kernel(
    x_ptr, z_ptr, z_stride, weight_ptr, out_ptr, eps, COUNT: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64)
    heads, dims = tl.program_id(0) * HEADS + tl.arange(0, HEADS)[:, None], tl.arange(0, DIM)[None, :]
    real = heads < COUNT
    at = heads * DIM + dims
    x = tl.load(x_ptr + row * (COUNT * DIM) + at, mask=real, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + row * z_stride + at, mask=real, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + dims).to(tl.float32)
    shrink = tl.rsqrt(tl.sum(x * x, 1) / DIM + eps)[:, None]
    found = x * shrink * weight * (z * tl.sigmoid(z))
    tl.store(out_ptr + row * (COUNT * DIM) + at, found.to(out_ptr.dtype.element_ty), mask=real)


def gated_norm(
    x: Tensor, z: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, out: Tensor | None = None
) -> Tensor:
    """x [R, heads, d] and gates z [R, heads * d], which may be a part of wider rows, to [R, heads * d] in `dtype`.

    `weight` [d]; d is a power of two. Rounded once.
    """
    rows, heads, dim = x.shape
    out = torch.empty(rows, heads * dim, dtype=dtype, device=x.device) if out is None else out
    gated_norm_kernel[triton.cdiv(heads, HEADS), rows](
        x, z, z.stride(0), weight, out, eps, heads, dim, HEADS, num_warps=WARPS, enable_fp_fusion=False
    )
    return out


def gated_norm_torch(
    x: Tensor, z: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, out: Tensor | None = None
) -> Tensor:
    """The same in the dtype of `weight`."""
    exact = x.to(weight.dtype)
    normed = exact * (exact.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
    found = (normed.flatten(1) * silu(z.to(weight.dtype))).to(dtype)
    return found if out is None else out.copy_(found)


def case(kind: str, heads: int, dim: int) -> Case:
    """One kernel as it is launched, for gates and outputs of a kind such as bf16."""
    signature = {"x_ptr": "*fp32:16", "z_ptr": f"*{kind}:16", "z_stride": "i32:16", "weight_ptr": "*fp32:16"}
    signature |= {"out_ptr": f"*{kind}:16", "eps": "fp32"}
    constants = {"COUNT": heads, "DIM": dim, "HEADS": HEADS}
    return Case(f"gated norm {kind} {heads}x{dim}", gated_norm_kernel, signature, constants, WARPS, fusion=False)


AUDIT = tuple(case(kind, 48, 128) for kind in ("bf16", "fp32"))
