"""NVFP4 weights times bfloat16 rows: codes become bfloat16 in registers, exactly, and no activation is quantised.

How a weight lies, and why a few masks and shifts are enough, is told in `nvfp4_layout`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import dense
from .emit import emit, per_output
from .native import NATIVE, inputs_at, product
from .nvfp4_layout import CHUNK, Nvfp4, unlaid
from .shapes import case, variants
from .splits import Workspace, launch
from .tiles import Tile, tile_of


def assembly() -> str:
    """PTX for two words (inputs 8, 9) and eight pairs of scales (10 to 17): eight pairs of bfloat16 (0 to 7)."""
    lines = ["{", ".reg .b32 a, b, c, d;", "prmt.b32 a, $8, $9, 0x5410;", "prmt.b32 b, $8, $9, 0x7632;"]
    for half, word in enumerate("ab"):
        for i, up in enumerate((0, 3, 6)):
            at, scale = (word if up == 0 else "c"), 10 + 4 * half + i
            lines += [f"shl.b32 c, {word}, {up};"] if up else []
            lines += [f"and.b32 c, {at}, 0x81C081C0;", f"mul.bf16x2 ${4 * half + i}, c, ${scale};"]
        lines += [f"shr.u32 c, {word}, 6;", "and.b32 c, c, 0x01800180;"]
        lines += [f"shr.u32 d, {word}, 5;", "lop3.b32 c, d, 0x00400040, c, 0xEA;"]
        lines += [f"shl.b32 d, {word}, 5;", "lop3.b32 c, d, 0x80008000, c, 0xEA;"]
        lines += [f"mul.bf16x2 ${4 * half + 3}, c, ${13 + 4 * half};"]
    return "\n".join([*lines, "}"])


ASSEMBLY = tl.constexpr(assembly())
CONSTRAINTS = tl.constexpr(",".join(["=r"] * 8 + ["r"] * 10))


@triton.jit
def low(pair):
    return (pair & 0xFFFF).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def high(pair):
    return (pair >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def four(scales):
    """The scales of the four blocks of a half, times 2^117."""
    even = (scales & 0x00FF00FF) * 16 + 0x70007000  # blocks 0 and 2
    odd = ((scales >> 8) & 0x00FF00FF) * 16 + 0x70007000  # 1 and 3
    return low(even), low(odd), high(even), high(odd)


@triton.jit
def number(bits):
    """The float32 whose upper half these bits are."""
    return (bits << 16).to(tl.float32, bitcast=True)


@triton.jit
def plain(half, scale, BLOCK: tl.constexpr):
    """What ASSEMBLY makes of one block of one half of the words, as float32."""
    if BLOCK < 3:
        return number((half << (3 * BLOCK)) & 0x81C0) * scale.to(tl.float32)
    return number(((half >> 6) & 0x0180) | ((half >> 5) & 0x0040) | ((half << 5) & 0x8000)) * scale.to(tl.float32)


@triton.jit
def decoded(words, low_scales, high_scales):
    """Weights [M, 16] of each of a chunk's eight blocks, times 2^-9."""
    s0, s1, s2, s3 = four(low_scales)
    s4, s5, s6, s7 = four(high_scales)
    if NATIVE:
        w0, w1, w2, w3, w4, w5, w6, w7 = tl.inline_asm_elementwise(
            ASSEMBLY,
            CONSTRAINTS,
            [words, s0, s1, s2, s3, s4, s5, s6, s7],
            dtype=(tl.bfloat16,) * 8,
            is_pure=True,
            pack=2,
        )
    else:
        lower, upper = words & 0xFFFF, (words >> 16) & 0xFFFF
        w0, w1, w2, w3 = plain(lower, s0, 0), plain(lower, s1, 1), plain(lower, s2, 2), plain(lower, s3, 3)
        w4, w5, w6, w7 = plain(upper, s4, 0), plain(upper, s5, 1), plain(upper, s6, 2), plain(upper, s7, 3)
    return w0, w1, w2, w3, w4, w5, w6, w7


@triton.jit
def beside(left, right):
    """Weights [M, 2 K] of [M, K] each. Another name for the same registers: one product of many inputs waits less often
    than many products of few, and adds in the same order."""
    return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (left.shape[0], 2 * left.shape[1]))


@triton.jit(do_not_specialize=["rows"])
def nvfp4_kernel(
    x_ptr,
    words_ptr,
    scales_ptr,
    outer_ptr,
    bias_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    rows,
    outputs,
    padded,
    inputs,
    pitch,
    M: tl.constexpr,
    N: tl.constexpr,
    SPLITS: tl.constexpr,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
):
    chunks = tl.cdiv(inputs, 128)
    share = tl.cdiv(chunks, SPLITS)
    first = tl.program_id(1) * share
    m, n, c = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(2) * N + tl.arange(0, N), tl.arange(0, 16)
    half = tl.arange(0, 64)
    words = words_ptr + first.to(tl.int64) * padded * 16 + m[:, None] * 16 + c[None, :]
    scales = scales_ptr + first.to(tl.int64) * padded * 2 + m
    x = x_ptr + n[None, :].to(tl.int64) * pitch + first * 128 + half[:, None]
    live = n[None, :] < rows
    scale = per_output(outer_ptr, outputs, M)
    bias = per_output(bias_ptr, outputs, M) if BIASED else 0
    acc = tl.zeros([M, N], tl.float32)
    for chunk in range(first, min(first + share, chunks)):
        word, low_scales, high_scales = tl.load(words), tl.load(scales), tl.load(scales + padded)
        start = chunk * 128 + half[:, None]
        low_x, high_x = inputs_at(x, start, inputs, live, EVEN), inputs_at(x + 64, start + 64, inputs, live, EVEN)
        w0, w1, w2, w3, w4, w5, w6, w7 = decoded(word, low_scales[:, None], high_scales[:, None])
        acc = product(beside(beside(w0, w1), beside(w2, w3)), low_x, acc, "ieee")
        acc = product(beside(beside(w4, w5), beside(w6, w7)), high_x, acc, "ieee")
        words += padded * 16
        scales += padded * 2
        x += 128
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
    x: Tensor,
    weight: Nvfp4,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Rows x [R, inputs] (bfloat16) times a laid-out weight, plus a bias [outputs]: [R, outputs] in `dtype` or x's own.

    Sums are float32, and rounded once.
    """
    if out is None:
        out = torch.empty(len(x), weight.outputs, dtype=dtype or x.dtype, device=x.device)
    return launch(
        nvfp4_kernel,
        (x,),
        (weight.words, weight.scales, weight.outer, weight.outer if bias is None else bias),
        out,
        (weight.words.shape[1], weight.inputs, x.stride(0)),
        tile or tile_of(weight.outputs, weight.inputs, "nvfp4"),
        workspace,
        BIASED=bias is not None,
        EVEN=weight.inputs % CHUNK == 0,
    )


def linear_torch(
    x: Tensor,
    weight: Nvfp4,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    return dense.linear_torch(x, unlaid(weight), bias, out=out, dtype=dtype)


SIGNATURE = {
    "x_ptr": "*bf16:16",
    "words_ptr": "*i32:16",
    "scales_ptr": "*i32:16",
    "outer_ptr": "*fp32:16",
    "bias_ptr": "*fp32:16",
    "out_ptr": "*bf16:16",
    "parts_ptr": "*fp32:16",
    "arrived_ptr": "*i32:16",
    "rows": "i32",
    "outputs": "i32:16",
    "padded": "i32:16",
    "inputs": "i32:16",
    "pitch": "i32:16",
}

AUDIT = tuple(case("nvfp4", nvfp4_kernel, one, SIGNATURE, BIASED=False, EVEN=True) for one in variants("nvfp4"))
