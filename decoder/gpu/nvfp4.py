"""NVFP4 weights times bfloat16 rows: codes become bfloat16 in registers, exactly, and no activation is quantised.

At load a weight is laid out once more (`lay`), so that a program streams it from front to back and a thread finds its
codes and scales in place. A chunk is 128 inputs of one output, 16 words of 32 bits: half h of word c holds the codes of
inputs 16 (4 h + i) + c, i = 0..3. Code i needs its sign at bit 15 and its other bits at 8, 7, 6 of a half to be a
bfloat16 that is 2^-126 of its value:

    i = 0  bits 15 8 7 6      i = 1  bits 12 5 4 3      i = 2  bits 9 2 1 0      i = 3  bits 10 14 13 11

(sign first). A block scale becomes 5 bits of exponent and 3 of mantissa, which 0x7000 turns into the bfloat16 that is
2^117 times its value. So a code times its scale is exact, and 2^-9 of its value; the tensor's scale makes up for that.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from .emit import emit
from .native import NATIVE, product
from .shapes import case, variants
from .splits import Workspace, grid_of, room
from .tiles import Tile, tile_of, width_of

CHUNK = 128
ROWS = 256  # outputs are padded to a multiple of so many: of those of any program
AT_ONCE = 8192  # outputs that are laid out at a time: it takes some forty times their bytes
LOST = 9  # of a weight's exponent on the way through the product

PLACES = ((6, 7, 8, 15), (3, 4, 5, 12), (0, 1, 2, 9), (11, 13, 14, 10))
"""Of each code of a half: where its bits 0 to 3 lie, the sign last."""

WANTED = (6, 7, 8, 15)
"""Where they lie in a bfloat16."""


class Nvfp4(NamedTuple):
    """A weight [outputs, inputs] laid out for the kernel; padding holds zeros."""

    words: Tensor  # int32 [chunks, padded outputs, 16]
    scales: Tensor  # int32 [chunks, 2, padded outputs]: the four blocks of half 0 and of half 1, lowest byte first
    outer: Tensor  # float32 [padded outputs]: the tensor's scale, times 2^9
    outputs: int
    inputs: int


def lay(codes: Tensor, scale: Tensor, outer: Tensor, *, divide: bool = False) -> Nvfp4:
    """Lay out codes [outputs, inputs / 2] with e4m3 block scales [outputs, inputs / 16] and the tensor's scale.

    `outer` is a scalar, or one value per output for fused modules; with `divide` it divides. A block of scale zero gets
    codes of zero, which is what it means. ValueError for a block scale that is negative or no number.
    """
    outputs, inputs = codes.shape[0], codes.shape[1] * 2
    rows, chunks = -(-outputs // ROWS) * ROWS, -(-inputs // CHUNK)
    words = torch.empty(chunks, rows, 16, dtype=torch.int32, device=codes.device)
    scales = torch.empty(chunks, 2, rows, dtype=torch.int32, device=codes.device)
    for start in range(0, rows, AT_ONCE):
        part = slice(start, min(start + AT_ONCE, rows))
        words[:, part], scales[:, :, part] = laid(codes[part], scale[part], part.stop - start)
    exact = outer.float().reshape(-1).expand(outputs) if outer.numel() == 1 else outer.float()
    exact = (1 / exact if divide else exact) * 2.0**LOST
    return Nvfp4(words, scales, pad(exact, (0, rows - outputs)).contiguous(), outputs, inputs)


def laid(codes: Tensor, scale: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Words [chunks, rows, 16] and scales [chunks, 2, rows] of the first outputs, padded up to `rows`."""
    outputs, inputs = codes.shape[0], codes.shape[1] * 2
    byte = scale.view(torch.uint8).int()
    if bool(((byte > 126) & (byte != 128)).any()):
        raise ValueError("weight_scale: a block scale must be a number, and not negative")
    code = torch.stack([codes & 15, codes >> 4], dim=-1).reshape(outputs, inputs).int()
    code = torch.where((byte & 127 == 0).repeat_interleave(16, dim=1), 0, code)
    code = pad(code, (0, -inputs % CHUNK, 0, rows - outputs)).view(rows, -1, 2, 4, 16)
    byte = pad(widened(byte), (0, -(inputs // 16) % 8, 0, rows - outputs)).view(rows, -1, 2, 4)
    halves = torch.zeros(*code.shape[:3], 16, dtype=torch.int32, device=codes.device)
    for i, places in enumerate(PLACES):
        for bit, place in enumerate(places):
            halves |= ((code[:, :, :, i] >> bit) & 1) << place
    shifts = torch.arange(0, 32, 8, dtype=torch.int32, device=codes.device)
    scales = (byte << shifts).sum(-1, dtype=torch.int32).permute(1, 2, 0)
    return (halves[:, :, 0] | halves[:, :, 1] << 16).transpose(0, 1), scales


def widened(byte: Tensor) -> Tensor:
    """e4m3 bytes (positive, not zero) with five bits of exponent: e5m3 = (exponent + 20) * 8 + mantissa."""
    value = torch.where(byte & 127 == 0, torch.full_like(byte, 8), byte & 127)
    exact = value.to(torch.uint8).view(torch.float8_e4m3fn).float()
    mantissa, exponent = torch.frexp(exact)  # in [0.5, 1)
    return (exponent.int() - 1 + 20) * 8 + ((mantissa * 16).int() - 8)


def unlaid(weight: Nvfp4) -> Tensor:
    """The weight [outputs, inputs] that a layout stands for, float32."""
    rows = weight.words.shape[1]
    bits = torch.stack([weight.words & 0xFFFF, (weight.words >> 16) & 0xFFFF], dim=2)  # [chunks, rows, 2, 16]
    codes = [torch.zeros_like(bits) for _ in PLACES]
    for code, places in zip(codes, PLACES, strict=True):
        for place, wanted in zip(places, WANTED, strict=True):
            code |= ((bits >> place) & 1) << wanted
    shifts = torch.arange(0, 32, 8, dtype=torch.int32, device=bits.device)
    scale = (weight.scales[..., None] >> shifts) & 255  # [chunks, 2, rows, 4]
    exact = bfloat16_of(torch.stack(codes, dim=3)) * bfloat16_of(scale * 16 + 0x7000).transpose(1, 2)[..., None]
    exact = exact.permute(1, 0, 2, 3, 4).reshape(rows, -1) * weight.outer[:, None]
    return exact[: weight.outputs, : weight.inputs]


def bfloat16_of(bits: Tensor) -> Tensor:
    """The numbers, as float32, whose lower halves are the bits of a bfloat16."""
    return (bits << 16).view(torch.float32)


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
def number(bits):
    """The float32 whose upper half these bits are."""
    return (bits << 16).to(tl.float32, bitcast=True)


@triton.jit
def plain(half, scales, BLOCK: tl.constexpr):
    """What ASSEMBLY makes of one half of the words, as float32, with block BLOCK of the word of scales."""
    scale = number(((scales >> (8 * BLOCK)) & 255) * 16 + 0x7000)
    if BLOCK < 3:
        return number((half << (3 * BLOCK)) & 0x81C0) * scale
    return number(((half >> 6) & 0x0180) | ((half >> 5) & 0x0040) | ((half << 5) & 0x8000)) * scale


@triton.jit
def decoded(words, low_scales, high_scales):
    """Weights [M, 16] of each of a chunk's eight blocks, times 2^-9."""
    if NATIVE:
        even = (low_scales & 0x00FF00FF) * 16 + 0x70007000  # blocks 0 and 2
        odd = ((low_scales >> 8) & 0x00FF00FF) * 16 + 0x70007000  # 1 and 3
        s0, s1, s2, s3 = low(even), low(odd), high(even), high(odd)
        even = (high_scales & 0x00FF00FF) * 16 + 0x70007000
        odd = ((high_scales >> 8) & 0x00FF00FF) * 16 + 0x70007000
        s4, s5, s6, s7 = low(even), low(odd), high(even), high(odd)
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
        w0, w1 = plain(lower, low_scales, 0), plain(lower, low_scales, 1)
        w2, w3 = plain(lower, low_scales, 2), plain(lower, low_scales, 3)
        w4, w5 = plain(upper, high_scales, 0), plain(upper, high_scales, 1)
        w6, w7 = plain(upper, high_scales, 2), plain(upper, high_scales, 3)
    return w0, w1, w2, w3, w4, w5, w6, w7


@triton.jit
def block(x_ptr, start, inputs, live, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Inputs [16, N] of one block; `start` [16, 1] is where each input of block 0 lies in its row."""
    if EVEN:
        return tl.load(x_ptr + 16 * BLOCK, mask=live, other=0.0)
    return tl.load(x_ptr + 16 * BLOCK, mask=live & (start + 16 * BLOCK < inputs), other=0.0)


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
    words = words_ptr + first.to(tl.int64) * padded * 16 + m[:, None] * 16 + c[None, :]
    scales = scales_ptr + first.to(tl.int64) * padded * 2 + m
    x = x_ptr + n[None, :].to(tl.int64) * pitch + first * 128 + c[:, None]
    live = n[None, :] < rows
    acc = tl.zeros([M, N], tl.float32)
    for chunk in range(first, min(first + share, chunks)):
        word, low_scales, high_scales = tl.load(words), tl.load(scales), tl.load(scales + padded)
        start = chunk * 128 + c[:, None]
        x0, x1 = block(x, start, inputs, live, 0, EVEN), block(x, start, inputs, live, 1, EVEN)
        x2, x3 = block(x, start, inputs, live, 2, EVEN), block(x, start, inputs, live, 3, EVEN)
        x4, x5 = block(x, start, inputs, live, 4, EVEN), block(x, start, inputs, live, 5, EVEN)
        x6, x7 = block(x, start, inputs, live, 6, EVEN), block(x, start, inputs, live, 7, EVEN)
        w0, w1, w2, w3, w4, w5, w6, w7 = decoded(word, low_scales[:, None], high_scales[:, None])
        acc = product(w0, x0, acc, "ieee")
        acc = product(w1, x1, acc, "ieee")
        acc = product(w2, x2, acc, "ieee")
        acc = product(w3, x3, acc, "ieee")
        acc = product(w4, x4, acc, "ieee")
        acc = product(w5, x5, acc, "ieee")
        acc = product(w6, x6, acc, "ieee")
        acc = product(w7, x7, acc, "ieee")
        words += padded * 16
        scales += padded * 2
        x += 128
    emit(
        acc,
        out_ptr,
        outer_ptr,
        bias_ptr,
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
    if not len(x):
        return out
    tile = tile or tile_of(weight.outputs, weight.inputs, "nvfp4")
    width = width_of(len(x))
    workspace = workspace or room(weight.outputs, len(x), tile, width, x.device)
    warps, stages = tile.at(width)
    nvfp4_kernel[grid_of(weight.outputs, len(x), tile, width)](
        x,
        weight.words,
        weight.scales,
        weight.outer,
        weight.outer if bias is None else bias,
        out,
        workspace.parts,
        workspace.arrived,
        len(x),
        weight.outputs,
        weight.words.shape[1],
        weight.inputs,
        x.stride(0),
        M=tile.outputs,
        N=width,
        SPLITS=tile.splits,
        BIASED=bias is not None,
        EVEN=weight.inputs % CHUNK == 0,
        num_warps=warps,
        num_stages=stages,
    )
    return out


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
    exact = torch.promote_types(x.dtype, torch.float32)
    found = x.to(exact) @ unlaid(weight).to(exact).T
    found = (found if bias is None else found + bias).to(dtype or x.dtype)
    return found if out is None else out.copy_(found)


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
