"""FP8 weights times bfloat16 rows: e4m3 becomes bfloat16 in registers, exactly, and no activation is quantised.

At load a weight is laid out once more (`lay`), so that a program streams it from front to back and a thread finds its
codes in place. A chunk is 128 inputs of one output, 32 words of 32 bits: half h of word c holds the codes of inputs
32 (2 h + i) + c, i = 0, 1. A code needs its sign at bit 15 and its other seven bits at 10 to 4 of a half to be a
bfloat16 that is 2^-120 of its value: there lies the first one, and the second has its sign at 11, its upper three bits
at 14 to 12, its lower four at 3 to 0.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import dense
from .emit import emit, per_output
from .native import NATIVE, inputs_at, product
from .shapes import case, variants
from .splits import Workspace, launch
from .tiles import Tile, tile_of

CHUNK = 128
ROWS = 256  # outputs are padded to a multiple of so many: of those of any program


class Fp8(NamedTuple):
    """A weight [outputs, inputs] laid out for the kernel; padding holds zeros."""

    words: Tensor  # int32 [chunks, padded outputs, 32]
    scale: Tensor  # float32 [padded outputs]
    outputs: int
    inputs: int


def lay(codes: Tensor, scale: Tensor) -> Fp8:
    """Lay out e4m3 codes [outputs, inputs], with one scale, or one per output for fused modules.

    ValueError for a code that is no number: the layout has none.
    """
    outputs, inputs = codes.shape
    byte = codes.view(torch.uint8).int()
    if bool(((byte & 127) == 127).any()):
        raise ValueError("weight: holds NaN")
    byte = torch.nn.functional.pad(byte, (0, -inputs % CHUNK, 0, -outputs % ROWS))
    rows = len(byte)
    first, second = byte.view(rows, -1, 2, 2, 32).unbind(3)  # [rows, chunks, halves, 32]
    half = (first & 128) << 8 | (first & 127) << 4
    half |= (second & 128) << 4 | (second & 112) << 8 | second & 15
    words = (half[:, :, 0] | half[:, :, 1] << 16).transpose(0, 1).contiguous()
    exact = scale.float().reshape(-1).expand(outputs) if scale.numel() == 1 else scale.float()
    return Fp8(words, torch.nn.functional.pad(exact, (0, rows - outputs)).contiguous(), outputs, inputs)


def unlaid(weight: Fp8) -> Tensor:
    """The weight [outputs, inputs] that a layout stands for, float32."""
    rows = weight.words.shape[1]
    half = torch.stack([weight.words & 0xFFFF, (weight.words >> 16) & 0xFFFF], dim=2)  # [chunks, rows, 2, 32]
    second = (half & 0x0800) >> 4 | (half >> 8) & 0x70 | half & 15
    byte = torch.stack([(half & 0x8000) >> 8 | (half >> 4) & 127, second], dim=3)
    exact = byte.to(torch.uint8).view(torch.float8_e4m3fn).float().permute(1, 0, 2, 3, 4).reshape(rows, -1)
    return (exact * weight.scale[:, None])[: weight.outputs, : weight.inputs]


def assembly() -> str:
    """PTX for two words (inputs 4, 5): four pairs of bfloat16 (0 to 3)."""
    lines = ["{", ".reg .b32 a, b, c, d;", "prmt.b32 a, $4, $5, 0x5410;", "prmt.b32 b, $4, $5, 0x7632;"]
    for half, word in enumerate("ab"):
        lines += [f"and.b32 c, {word}, 0x87F087F0;", f"mul.bf16x2 ${2 * half}, c, $6;"]
        lines += [f"shr.u32 c, {word}, 4;", "and.b32 c, c, 0x07000700;"]
        lines += [f"shl.b32 d, {word}, 4;", "lop3.b32 c, d, 0x80F080F0, c, 0xEA;"]
        lines += [f"mul.bf16x2 ${2 * half + 1}, c, $6;"]
    return "\n".join([*lines, "}"])


ASSEMBLY = tl.constexpr(assembly())
CONSTRAINTS = tl.constexpr(",".join(["=r"] * 4 + ["r"] * 3))


@triton.jit
def number(bits):
    """2^120 times the float32 whose upper half these bits are."""
    return (bits << 16).to(tl.float32, bitcast=True) * 1.329227995784916e36


@triton.jit
def decoded(words):
    """Weights [M, 32] of each of a chunk's four blocks."""
    if NATIVE:
        raised = tl.full([1, 1], 1.329227995784916e36, tl.bfloat16)  # 2^120
        w0, w1, w2, w3 = tl.inline_asm_elementwise(
            ASSEMBLY, CONSTRAINTS, [words, raised], dtype=(tl.bfloat16,) * 4, is_pure=True, pack=2
        )
    else:
        lower, upper = words & 0xFFFF, (words >> 16) & 0xFFFF
        w0, w1 = number(lower & 0x87F0), number(((lower >> 4) & 0x0700) | ((lower << 4) & 0x80F0))
        w2, w3 = number(upper & 0x87F0), number(((upper >> 4) & 0x0700) | ((upper << 4) & 0x80F0))
    return w0, w1, w2, w3


@triton.jit(do_not_specialize=["rows"])
def fp8_kernel(
    x_ptr,
    words_ptr,
    scale_ptr,
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
    m, n, c = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(2) * N + tl.arange(0, N), tl.arange(0, 32)
    words = words_ptr + first.to(tl.int64) * padded * 32 + m[:, None] * 32 + c[None, :]
    x = x_ptr + n[None, :].to(tl.int64) * pitch + first * 128 + c[:, None]
    live = n[None, :] < rows
    scale = per_output(scale_ptr, outputs, M)
    bias = per_output(bias_ptr, outputs, M) if BIASED else 0
    acc = tl.zeros([M, N], tl.float32)
    for chunk in range(first, min(first + share, chunks)):
        start, word = chunk * 128 + c[:, None], tl.load(words)
        x0 = inputs_at(x, start, inputs, live, EVEN)
        x1 = inputs_at(x + 32, start + 32, inputs, live, EVEN)
        x2 = inputs_at(x + 64, start + 64, inputs, live, EVEN)
        x3 = inputs_at(x + 96, start + 96, inputs, live, EVEN)
        w0, w1, w2, w3 = decoded(word)
        acc = product(w0, x0, acc, "ieee")
        acc = product(w1, x1, acc, "ieee")
        acc = product(w2, x2, acc, "ieee")
        acc = product(w3, x3, acc, "ieee")
        words += padded * 32
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
    weight: Fp8,
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
        fp8_kernel,
        (x,),
        (weight.words, weight.scale, weight.scale if bias is None else bias),
        out,
        (weight.words.shape[1], weight.inputs, x.stride(0)),
        tile or tile_of(weight.outputs, weight.inputs, "fp8"),
        workspace,
        BIASED=bias is not None,
        EVEN=weight.inputs % CHUNK == 0,
    )


def linear_torch(
    x: Tensor,
    weight: Fp8,
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
    "scale_ptr": "*fp32:16",
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
AUDIT = tuple(case("fp8", fp8_kernel, one, SIGNATURE, BIASED=False, EVEN=True) for one in variants("fp8"))
