"""NVFP4 weights times NVFP4 rows: both operands stay four bits wide, and the block scales go into the instruction.

Rows are quantised on the spot, per row and block of 16, with a static tensor scale, so a row's codes depend on the row
alone. Native on SM120 (block-scaled mxf4nvf4 mma.sync); it does not compile for SM90. In the interpreter both operands
are decoded and multiplied, so everything but the instruction runs there.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..quantise import codes_of, pack
from .audit import Case
from .emit import emit, per_output
from .native import NATIVE
from .splits import Workspace, launch
from .tiles import Tile

BLOCKS = 64  # of one program of the quantiser
DEPTH = 256  # inputs of one step of the product
WIDTH = 64  # rows of one program, whatever their number
TILE = Tile(128, 1, (8, 8, 8, 8), (3, 3, 3, 3))
"""The one tile, at the one width."""


class Blocked(NamedTuple):
    """A weight [outputs, inputs] as ModelOpt stores it."""

    codes: Tensor  # uint8 [outputs, inputs / 2], even inputs low
    scales: Tensor  # e4m3 [outputs, inputs / 16]
    outer: Tensor  # float32 [outputs]: the weight's tensor scale times that of the rows
    input_scale: Tensor  # float32, one number


class Rows(NamedTuple):
    """Quantised rows [R, inputs]."""

    codes: Tensor  # uint8 [R, inputs / 2], even inputs low
    scales: Tensor  # e4m3 [R, inputs / 16]


@triton.jit
def quantise_kernel(x_ptr, scale_ptr, codes_ptr, scales_ptr, blocks, pitch, BLOCKS: tl.constexpr):
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    real, lane = block < blocks, tl.arange(0, 16)
    where = x_ptr + row * pitch + block[:, None] * 16 + lane[None, :]
    x = tl.load(where, mask=real[:, None], other=0.0).to(tl.float32)
    outer = tl.load(scale_ptr)
    largest = tl.max(tl.abs(x), 1)
    largest = tl.where(tl.max((x != x).to(tl.int32), 1) > 0, float("nan"), largest)  # e2m1 has no NaN, e4m3 has
    scale = tl.minimum(tl.div_rn(tl.div_rn(largest, 6.0), outer), 448.0, propagate_nan=tl.PropagateNan.ALL)
    code = scale.to(tl.float8e4nv)
    tl.store(scales_ptr + row * blocks + block, code, mask=real)
    scale = code.to(tl.float32)
    step = tl.where(scale == 0, 1.0, scale * outer)
    size = tl.div_rn(tl.abs(x), tl.broadcast_to(step[:, None], (BLOCKS, 16)))
    found = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32) + (size > 1.25).to(tl.int32)
    found += (size >= 1.75).to(tl.int32) + (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32)
    found += (size > 5.0).to(tl.int32) + tl.where(x.to(tl.int32, bitcast=True) < 0, 8, 0)
    found = tl.where(scale[:, None] == 0, 0, found)
    low, high = tl.split(tl.reshape(found, (BLOCKS, 8, 2)))
    pair = tl.arange(0, 8)
    where = codes_ptr + row * (blocks * 8) + block[:, None] * 8 + pair[None, :]
    tl.store(where, (low | (high << 4)).to(tl.uint8), mask=real[:, None])


def quantise(x: Tensor, input_scale: Tensor, *, out: Rows | None = None) -> Rows:
    """Rows x [R, inputs] in NVFP4 by ModelOpt's rule, with the tensor scale `input_scale` [1].

    A block whose scale rounds to zero becomes zero. Computed in float32.
    """
    count, inputs = x.shape
    if inputs % 16:
        raise ValueError(f"x: rows must be a multiple of 16 long, got {inputs}")
    out = empty(x) if out is None else out
    if count:
        quantise_kernel[(-(-(inputs // 16) // BLOCKS), count)](
            x, input_scale, out.codes, out.scales, inputs // 16, x.stride(0), BLOCKS=BLOCKS
        )
    return out


def empty(x: Tensor) -> Rows:
    """Room for rows x [R, inputs]."""
    count, inputs = x.shape
    codes = torch.empty(count, inputs // 2, dtype=torch.uint8, device=x.device)
    return Rows(codes, torch.empty(count, inputs // 16, dtype=torch.float8_e4m3fn, device=x.device))


def quantise_torch(x: Tensor, input_scale: Tensor, *, out: Rows | None = None) -> Rows:
    """The same by its definition, in float32."""
    blocks = x.float().reshape(len(x), -1, 16)
    six = blocks.new_tensor(6)  # by a Python number, CUDA would multiply with its reciprocal
    scale = (blocks.abs().amax(-1) / six / input_scale).clamp(max=448.0).to(torch.float8_e4m3fn)
    exact = scale.float()[..., None]
    code = codes_of(blocks / torch.where(exact == 0, 1.0, exact * input_scale))
    found = Rows(pack(torch.where(exact == 0, 0, code).flatten(1)), scale)
    return found if out is None else Rows(out.codes.copy_(found.codes), out.scales.copy_(found.scales))


@triton.jit
def numbers(codes, scales):
    """What codes [M, K / 2] with block scales [M, K / 16] stand for, float32 [M, K]."""
    both = tl.reshape(tl.join(codes & 15, codes >> 4), (codes.shape[0], codes.shape[1] * 2)).to(tl.int32)
    exact = (((both & 8) << 28) | ((both & 7) << 22)).to(tl.float32, bitcast=True) * 8.507059173023462e37  # 2^126
    blocks = tl.reshape(exact, (codes.shape[0], scales.shape[1], 16)) * scales.to(tl.float32)[:, :, None]
    return tl.reshape(blocks, (codes.shape[0], codes.shape[1] * 2))


@triton.jit(do_not_specialize=["rows"])
def block_kernel(
    codes_ptr,
    scales_ptr,
    weight_ptr,
    weight_scales_ptr,
    outer_ptr,
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
):
    share = tl.cdiv(tl.cdiv(inputs, K), SPLITS) * K
    first = tl.program_id(1) * share
    m, n = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(2) * N + tl.arange(0, N)
    pair, block = tl.arange(0, K // 2), tl.arange(0, K // 16)
    m = tl.minimum(m, outputs - 1).to(tl.int64)[:, None]
    n = tl.minimum(n, rows - 1).to(tl.int64)
    outer = per_output(outer_ptr, outputs, M)
    acc = tl.zeros([M, N], tl.float32)
    for start in range(first, min(first + share, inputs), K):
        pairs, blocks = start // 2 + pair, start // 16 + block
        live, alive = pairs < inputs // 2, blocks < inputs // 16
        weight = tl.load(weight_ptr + m * (inputs // 2) + pairs[None, :], mask=live[None, :], other=0)
        weight_scale = tl.load(weight_scales_ptr + m * (inputs // 16) + blocks[None, :], mask=alive[None, :], other=0.0)
        x = tl.load(codes_ptr + n[None, :] * (inputs // 2) + pairs[:, None], mask=live[:, None], other=0)
        scale = tl.load(scales_ptr + n[:, None] * (inputs // 16) + blocks[None, :], mask=alive[None, :], other=0.0)
        if NATIVE:
            acc = tl.dot_scaled(weight, weight_scale, "e2m1", x, scale, "e2m1", acc)
        else:
            acc += tl.dot(numbers(weight, weight_scale), tl.trans(numbers(tl.trans(x), scale)), input_precision="ieee")
    emit(
        acc,
        outer,
        0,
        out_ptr,
        parts_ptr,
        arrived_ptr,
        rows,
        outputs,
        M,
        N,
        SPLITS,
        SCALED=True,
        BIASED=False,
    )


def linear(
    x: Rows,
    weight: Blocked,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    workspace: Workspace | None = None,
) -> Tensor:
    """Quantised rows [R, inputs] times a weight: [R, outputs] in `dtype`; sums are float32, and rounded once."""
    outputs, inputs = len(weight.codes), weight.codes.shape[1] * 2
    out = torch.empty(len(x.codes), outputs, dtype=dtype, device=x.codes.device) if out is None else out
    operands = (weight.codes, weight.scales, weight.outer)
    return launch(block_kernel, x, operands, out, (inputs,), TILE, workspace, width=WIDTH, K=DEPTH)


def linear_torch(
    x: Rows,
    weight: Blocked,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    workspace: Workspace | None = None,
) -> Tensor:
    """The same by its definition, in float32, or in float64 if `dtype` is."""
    exact = torch.promote_types(dtype, torch.float32)
    found = decoded(*x, exact) @ decoded(weight.codes, weight.scales, exact).T * weight.outer.to(exact)
    return found.to(dtype) if out is None else out.copy_(found)


def decoded(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What codes [M, K / 2] with block scales [M, K / 16] stand for, [M, K]."""
    code = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1).int()
    exact = (((code & 8) << 28) | ((code & 7) << 22)).view(torch.float32).to(dtype) * 2.0**126
    return (exact.view(*scales.shape, 16) * scales.to(dtype)[..., None]).flatten(1)


AUDIT = (
    Case(
        "nvfp4 rows",
        quantise_kernel,
        {
            "x_ptr": "*bf16:16",
            "scale_ptr": "*fp32:16",
            "codes_ptr": "*u8:16",
            "scales_ptr": "*fp8e4nv:16",
            "blocks": "i32:16",
            "pitch": "i32:16",
        },
        {"BLOCKS": BLOCKS},
    ),
    Case(
        f"nvfp4 block-scaled {TILE.outputs}x{WIDTH}",
        block_kernel,
        {
            "codes_ptr": "*u8:16",
            "scales_ptr": "*fp8e4nv:16",
            "weight_ptr": "*u8:16",
            "weight_scales_ptr": "*fp8e4nv:16",
            "outer_ptr": "*fp32:16",
            "out_ptr": "*bf16:16",
            "parts_ptr": "*fp32:16",
            "arrived_ptr": "*i32:16",
            "rows": "i32",
            "outputs": "i32:16",
            "inputs": "i32:16",
        },
        {"M": TILE.outputs, "N": WIDTH, "K": DEPTH, "SPLITS": TILE.splits},
        warps=TILE.at(WIDTH)[0],
        stages=TILE.at(WIDTH)[1],
        mma="mxf4nvf4.block_scale",
        only=("sm_120a",),
    ),
)
