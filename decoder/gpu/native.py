"""What depends on whether kernels run as machine code, or in Triton's interpreter, which knows neither PTX nor products
of bfloat16."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

NATIVE = tl.constexpr(not triton.knobs.runtime.interpret)
"""In a kernel: `if NATIVE` takes the fast path; the other one means the same, in float32 and in plain Triton."""

AHEAD = tl.constexpr(4)
"""Steps of a product whose weights are asked for before a kernel waits: some of what memory delivers meanwhile."""


@triton.jit
def follow():
    """Let the next kernel start, and wait until all before this one are done and what they wrote can be read.

    The first thing that a kernel does, in every program, since a kernel that waits relies on the one before having
    waited. All are launched with `launch_pdl`: their launches then overlap, and nothing else does.
    """
    if NATIVE:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def prefetch(ptr, pitch, blocks, LINES: tl.constexpr, BLOCKS: tl.constexpr):
    """Have the cache fetch what no kernel writes, in front of `follow`: blocks of LINES lines of 128 bytes, `pitch`
    bytes from each other, BLOCKS of them if there are so many."""
    if NATIVE:
        line = tl.arange(0, LINES * BLOCKS)
        block = line // LINES
        at = ptr.to(tl.int64) + block.to(tl.int64) * pitch + line % LINES * 128
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.lt.s32 p, $2, $3; @p prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
            "=r,l,r,r",
            [at, block, blocks],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def product(weight, x, acc, PRECISION: tl.constexpr):
    """acc [M, N] + weight [M, K] @ x [K, N], in float32."""
    if NATIVE:
        return tl.dot(weight, x, acc, input_precision=PRECISION)
    return tl.dot(weight.to(tl.float32), x.to(tl.float32), acc, input_precision="ieee")
