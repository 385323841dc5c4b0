"""Rounding to e4m3 in plain arithmetic: to nearest, ties to even, saturating at 448, the same bits on every machine."""

import triton
import triton.language as tl


@triton.jit
def e4m3(x):  # type: ignore[no-untyped-def]
    """The code, int32, of float32 numbers, and the number that it stands for."""
    size = tl.minimum(tl.abs(x), 448.0)
    exponent = tl.maximum(((size.to(tl.int32, bitcast=True) >> 23) & 255) - 127, -6)  # subnormal numbers share the lowest
    step = ((exponent + 124) << 23).to(tl.float32, bitcast=True)  # 2^(exponent - 3)
    up = ((130 - exponent) << 23).to(tl.float32, bitcast=True)  # its inverse: exact, and a division is not
    steps = (size * up + 8388608.0) - 8388608.0  # to the nearest whole number, ties to even: 0 to 16
    negative = x.to(tl.int32, bitcast=True) < 0
    code = ((exponent + 7) << 3) + steps.to(tl.int32) - 8 + tl.where(negative, 128, 0)
    return code, tl.where(negative, -steps * step, steps * step)
