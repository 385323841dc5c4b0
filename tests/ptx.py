"""A machine for the few PTX instructions of the kernels' inline assembly, so that its text runs without a GPU."""

import re
from collections.abc import Sequence

import numpy as np
import torch

MASK = 0xFFFFFFFF


def permuted(a: int, b: int, selector: int) -> int:
    """prmt.b32: byte i of the result is the byte of (a, b) that nibble i names."""
    both = (b << 32) | a
    return sum(((both >> (8 * ((selector >> (4 * i)) & 7))) & 255) << (8 * i) for i in range(4))


def chosen(a: int, b: int, c: int, table: int) -> int:
    """lop3.b32: every bit by a table of eight."""
    found = 0
    for place in range(8):
        if (table >> place) & 1:
            found |= (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
    return found & MASK


def multiplied(a: int, b: int) -> int:
    """mul.bf16x2: two products, each rounded once, subnormal numbers as they are."""
    left, right = (
        torch.from_numpy(np.array([x & 0xFFFF, x >> 16], dtype=np.uint16).view(np.int16)).view(torch.bfloat16)
        for x in (a, b)
    )
    low, high = (left.double() * right.double()).to(torch.bfloat16).view(torch.int16).tolist()
    return (low & 0xFFFF) | (high & 0xFFFF) << 16


OPERATIONS = {
    "mov.b32": lambda a: a,
    "prmt.b32": permuted,
    "lop3.b32": chosen,
    "mul.bf16x2": multiplied,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "shl.b32": lambda a, b: (a << b) & MASK,
    "shr.u32": lambda a, b: a >> b,
}


def run(assembly: str, outputs: int, inputs: Sequence[int]) -> list[int]:
    """The 32-bit outputs $0, $1, ... that a text makes of its inputs, which are numbered on from there."""
    registers = {f"${outputs + i}": value & MASK for i, value in enumerate(inputs)}
    for statement in re.sub(r"[{}]", "", assembly).split(";"):
        words = statement.replace(",", " ").split()
        if not words or words[0] == ".reg":
            continue
        name, target, *sources = words
        registers[target] = OPERATIONS[name](
            *(registers[source] if source in registers else int(source, 0) for source in sources)
        )
    return [registers[f"${i}"] for i in range(outputs)]
