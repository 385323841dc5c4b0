"""NVFP4 weights as their kernel wants them.

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
from torch import Tensor
from torch.nn.functional import pad

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
