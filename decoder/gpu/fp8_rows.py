"""FP8 weights times FP8 rows: both operands are e4m3, and every 32 inputs are added up in float32.

The scale of a weight is static; that of a row is static too, or its own largest value over 448. Never one of all rows.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case
from .emit import emit, per_output
from .native import NATIVE
from .shapes import case, variants
from .splits import Workspace, launch
from .tiles import Tile, tile_of

DEPTH = 128  # inputs of one step of the product


class Rows(NamedTuple):
    """Quantised rows [R, inputs]."""

    codes: Tensor  # e4m3 [R, inputs]
    scales: Tensor  # float32 [R]


@triton.jit
def quantise_kernel(x_ptr, scale_ptr, codes_ptr, scales_ptr, width, pitch, WIDTH: tl.constexpr, STATIC: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    real = lane < width
    x = tl.load(x_ptr + row * pitch + lane, mask=real, other=0.0).to(tl.float32)
    if STATIC:
        scale = tl.load(scale_ptr)
    else:
        scale = tl.div_rn(tl.max(tl.abs(x)), 448.0)
        scale = tl.where(scale == 0, 1.0, scale)
    x = tl.div_rn(x, tl.zeros([WIDTH], tl.float32) + scale)
    x = tl.clamp(x, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(codes_ptr + row * width + lane, x.to(tl.float8e4nv), mask=real)
    tl.store(scales_ptr + row, scale)


def quantise(x: Tensor, input_scale: Tensor | None = None, *, out: Rows | None = None) -> Rows:
    """Rows x [R, inputs] in e4m3, with a static scale [1], or each with a scale of its own. Computed in float32."""
    if out is None:
        codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        out = Rows(codes, torch.empty(len(x), dtype=torch.float32, device=x.device))
    if len(x):
        quantise_kernel[(len(x),)](
            x,
            out.scales if input_scale is None else input_scale,
            out.codes,
            out.scales,
            x.shape[1],
            x.stride(0),
            WIDTH=triton.next_power_of_2(x.shape[1]),
            STATIC=input_scale is not None,
            num_warps=8,
        )
    return out


def quantise_torch(x: Tensor, input_scale: Tensor | None = None, *, out: Rows | None = None) -> Rows:
    """The same by its definition, in float32."""
    exact = x.float()
    largest = exact.new_tensor(448)  # by a Python number, CUDA would multiply with its reciprocal
    scales = exact.abs().amax(1) / largest if input_scale is None else input_scale.float().expand(len(x))
    scales = torch.where(scales == 0, 1.0, scales)
    codes = (exact / scales[:, None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return Rows(codes, scales) if out is None else Rows(out.codes.copy_(codes), out.scales.copy_(scales))


@triton.jit(do_not_specialize=["rows"])
def rows_kernel(
    x_ptr,
    x_scale_ptr,
    weight_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    rows,
    outputs,
    inputs,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    BIASED: tl.constexpr,
):
    share = tl.cdiv(tl.cdiv(inputs, K), SPLITS) * K
    first = tl.program_id(1) * share
    m, n = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(2) * N + tl.arange(0, N)
    k = first + tl.arange(0, K)
    weight = weight_ptr + tl.minimum(m, outputs - 1)[:, None].to(tl.int64) * inputs + k[None, :]
    x = x_ptr + tl.minimum(n, rows - 1)[None, :].to(tl.int64) * inputs + k[:, None]
    scale = per_output(scale_ptr, outputs, M)
    bias = per_output(bias_ptr, outputs, M) if BIASED else 0
    acc = tl.zeros([M, N], tl.float32)
    for start in range(first, min(first + share, inputs), K):
        there = start - first + k < inputs
        part = tl.load(weight, mask=there[None, :], other=0.0)
        given = tl.load(x, mask=there[:, None], other=0.0)
        if NATIVE:
            acc = tl.dot(part, given, acc, max_num_imprecise_acc=32)
        else:
            acc = tl.dot(part.to(tl.float32), given.to(tl.float32), acc, input_precision="ieee")
        weight += K
        x += K
    acc *= tl.load(x_scale_ptr + n, mask=n < rows, other=0.0)[None, :]
    emit(
        acc,
        scale,
        bias,
        out_ptr,
        parts_ptr,
        arrived_ptr,
        rows,
        outputs,
        M,
        N,
        SPLITS,
        SCALED=True,
        BIASED=BIASED,
    )


def linear(
    x: Rows,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Quantised rows times weight, e4m3 [outputs, inputs], with scales [outputs], plus a bias: [R, outputs]."""
    outputs, inputs = weight.shape
    out = torch.empty(len(x.codes), outputs, dtype=dtype, device=weight.device) if out is None else out
    return launch(
        rows_kernel,
        x,
        (weight, scale, scale if bias is None else bias),
        out,
        (inputs,),
        tile or tile_of(outputs, inputs, "fp8 x fp8"),
        workspace,
        K=DEPTH,
        BIASED=bias is not None,
    )


def linear_torch(
    x: Rows,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """The same by its definition, in float32, or in float64 if `dtype` is."""
    exact = torch.promote_types(dtype, torch.float32)
    found = (x.codes.to(exact) @ weight.to(exact).T) * x.scales.to(exact)[:, None] * scale.to(exact)
    found = (found if bias is None else found + bias.to(exact)).to(dtype)
    return found if out is None else out.copy_(found)


SIGNATURE = {
    "x_ptr": "*fp8e4nv:16",
    "x_scale_ptr": "*fp32:16",
    "weight_ptr": "*fp8e4nv:16",
    "scale_ptr": "*fp32:16",
    "bias_ptr": "*fp32:16",
    "out_ptr": "*bf16:16",
    "parts_ptr": "*fp32:16",
    "arrived_ptr": "*i32:16",
    "rows": "i32",
    "outputs": "i32:16",
    "inputs": "i32:16",
}
QUANTISER = {
    "x_ptr": "*bf16:16",
    "scale_ptr": "*fp32:16",
    "codes_ptr": "*fp8e4nv:16",
    "scales_ptr": "*fp32:16",
    "width": "i32:16",
    "pitch": "i32:16",
}
AUDIT = (
    Case("fp8 rows, static scale", quantise_kernel, QUANTISER, {"WIDTH": 8192, "STATIC": True}, warps=8),
    Case("fp8 rows, own scale", quantise_kernel, QUANTISER, {"WIDTH": 8192, "STATIC": False}, warps=8),
    *(case("fp8 x fp8", rows_kernel, one, SIGNATURE, K=DEPTH, BIASED=False) for one in variants("fp8 x fp8", "fp8")),
)
