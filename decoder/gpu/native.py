"""What kernels of products share, as machine code or in Triton's interpreter, which knows neither PTX nor products of
bfloat16."""

import triton
import triton.language as tl

NATIVE = tl.constexpr(not triton.knobs.runtime.interpret)
"""In a kernel: `if NATIVE` takes the fast path; the other one means the same, in float32 and in plain Triton."""


@triton.jit
def inputs_at(x_ptr, places, inputs, live, EVEN: tl.constexpr):
    """Inputs [K, N] of rows that are live [1, N]; `places` [K, 1] are where they lie in their rows."""
    if EVEN:
        return tl.load(x_ptr, mask=live, other=0.0)
    return tl.load(x_ptr, mask=live & (places < inputs), other=0.0)


@triton.jit
def product(weight, x, acc, PRECISION: tl.constexpr):
    """acc [M, N] + weight [M, K] @ x [K, N], in float32."""
    if NATIVE:
        return tl.dot(weight, x, acc, input_precision=PRECISION)
    return tl.dot(weight.to(tl.float32), x.to(tl.float32), acc, input_precision="ieee")
