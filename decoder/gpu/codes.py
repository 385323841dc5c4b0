"""e4m3 codes as bfloat16, exactly, by whole-number instructions on two of them at a time.

A code's exponent and mantissa, put where bfloat16 has its own, are 2^-120 of its value, subnormal codes too. The
conversion that a GPU has goes by way of float16 and a slow unit.
"""

import triton
import triton.language as tl

from .native import NATIVE

ASSEMBLY = """
{
    .reg .b32 low, high, magnitude, raised;
    mov.b32 raised, 0x7B807B80;
    prmt.b32 low, $2, 0, 0x1404;
    prmt.b32 high, $2, 0, 0x3424;
    shr.u32 magnitude, low, 4;
    and.b32 magnitude, magnitude, 0x07F007F0;
    lop3.b32 low, low, 0x80008000, magnitude, 0xEA;
    shr.u32 magnitude, high, 4;
    and.b32 magnitude, magnitude, 0x07F007F0;
    lop3.b32 high, high, 0x80008000, magnitude, 0xEA;
    mul.bf16x2 $0, low, raised;
    mul.bf16x2 $1, high, raised;
}
"""
"""$2, four codes, lowest byte first, to $0 and $1, two numbers each."""

DECODE = tl.constexpr(ASSEMBLY)


@triton.jit
def decoded(x, DTYPE: tl.constexpr):
    """Codes or numbers as numbers of DTYPE. There is no NaN among the codes: where one would be, there is 480."""
    if NATIVE and x.dtype == tl.float8e4nv and DTYPE == tl.bfloat16:  # noqa: SIM300
        codes = x.to(tl.uint8, bitcast=True)
        return tl.inline_asm_elementwise(DECODE, "=r,=r,r", [codes], tl.bfloat16, is_pure=False, pack=4)
    return x.to(DTYPE)
