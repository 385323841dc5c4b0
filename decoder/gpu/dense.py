"""Dense weights times rows of the same dtype, bfloat16 or float32, with sums in float32."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case
from .emit import emit, per_output
from .native import product
from .shapes import Variant, case, variants
from .splits import Workspace, launch
from .tiles import WIDTHS, Tile, tile_of

DEPTH = {torch.bfloat16: 128, torch.float32: 32}
"""Inputs of one step."""


@triton.jit(do_not_specialize=["rows"])
def dense_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    rows,
    outputs,
    inputs,
    pitch,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
):
    share = tl.cdiv(tl.cdiv(inputs, K), SPLITS) * K
    first = tl.program_id(1) * share
    m, n = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(2) * N + tl.arange(0, N)
    k = first + tl.arange(0, K)
    weight = weight_ptr + tl.minimum(m, outputs - 1)[:, None].to(tl.int64) * inputs + k[None, :]
    x = x_ptr + n[None, :].to(tl.int64) * pitch + k[:, None]
    live = n[None, :] < rows
    bias = per_output(bias_ptr, outputs, M) if BIASED else 0
    acc = tl.zeros([M, N], tl.float32)
    for start in range(first, min(first + share, inputs), K):
        if EVEN:
            acc = product(tl.load(weight), tl.load(x, mask=live, other=0.0), acc, "ieee")
        else:
            there = start - first + k < inputs
            part = tl.load(weight, mask=there[None, :], other=0.0)
            acc = product(part, tl.load(x, mask=live & there[:, None], other=0.0), acc, "ieee")
        weight += K
        x += K
    emit(
        acc,
        0,
        bias,
        out_ptr,
        parts_ptr,
        arrived_ptr,
        rows,
        outputs,
        M,
        N,
        SPLITS,
        SCALED=False,
        BIASED=BIASED,
    )


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Rows x [R, inputs] times weight [outputs, inputs] of the same dtype, plus a bias: [R, outputs] in `dtype`.

    Sums are float32, and rounded once. A row of x may be longer than its inputs.
    """
    outputs, inputs = weight.shape
    if out is None:
        out = torch.empty(len(x), outputs, dtype=dtype or x.dtype, device=x.device)
    return launch(
        dense_kernel,
        (x,),
        (weight, weight if bias is None else bias),
        out,
        (inputs, x.stride(0)),
        tile or tile_of(outputs, inputs, kind_of(x.dtype)),
        workspace,
        K=DEPTH[x.dtype],
        BIASED=bias is not None,
        EVEN=inputs % DEPTH[x.dtype] == 0,
    )


def kind_of(dtype: torch.dtype) -> str:
    return "dense" if dtype is torch.bfloat16 else "float32"


def linear_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    exact = torch.promote_types(x.dtype, torch.float32)
    found = x.to(exact) @ weight.to(exact).T
    found = (found if bias is None else found + bias.to(exact)).to(dtype or x.dtype)
    return found if out is None else out.copy_(found)


def signature(element: str) -> dict[str, str]:
    pointers = dict.fromkeys(("x_ptr", "weight_ptr", "bias_ptr", "out_ptr"), f"*{element}:16")
    pointers |= {"parts_ptr": "*fp32:16", "arrived_ptr": "*i32:16"}
    return pointers | {"rows": "i32", "outputs": "i32:16", "inputs": "i32:16", "pitch": "i32:16"}


def cases(element: str, dtype: torch.dtype, ones: Sequence[Variant]) -> list[Case]:
    given, depth = signature(element), DEPTH[dtype]
    return [case(f"dense {element}", dense_kernel, one, given, K=depth, BIASED=False, EVEN=True) for one in ones]


AUDIT = (
    *cases("bf16", torch.bfloat16, variants("dense")),
    *cases("fp32", torch.float32, [Variant(tile_of(2048, 192, "float32"), width) for width in WIDTHS]),
)
