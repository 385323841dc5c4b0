"""The best ids of rows of logits, equal logits by lowest id.

First every group of a row is reduced to its best entry. The best k entries of a row lie in at most k groups, those
whose own best are the best k of all; so a second launch, with one program per row, looks at these groups alone. It
finds them in the same way, among sets of groups: maxima are cheap, and sorting is not. A logit and its id make one
number, no two of a row are equal, and no order of a reduction can matter.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case

GROUP = 64  # entries of a group, COLUMNS apart
COLUMNS = 128  # groups of a program
STEP = 16  # entries of each group that are loaded together
WARPS = 1
PICK_WARPS = 8
NOTHING = tl.constexpr(-(2**63))  # below every entry


@triton.jit
def ordered(x):
    """An int64 that grows with the logit, and is a multiple of 2^32; NaN counts as impossible."""
    x = tl.where(x == x, x, float("-inf"))
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) << 32


@triton.jit
def entry(x, ids):
    """The same, and among equals it grows with falling id."""
    return ordered(x) | (0xFFFFFFFF - ids.to(tl.int64))


@triton.jit
def id_of(found):
    return (0xFFFFFFFF - (found & 0xFFFFFFFF)).to(tl.int32)


@triton.jit
def group_of(found, GROUP: tl.constexpr, COLUMNS: tl.constexpr):
    """The place of an entry's group in its row of groups."""
    ids = id_of(found)
    return ids // (GROUP * COLUMNS) * COLUMNS + ids % COLUMNS


@triton.jit
def groups_kernel(
    logits_ptr,
    stride,
    groups_ptr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
):
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    best = tl.full([COLUMNS], NOTHING, tl.int64)
    for begin in range(0, GROUP, STEP):
        ids = (block * GROUP + begin + tl.arange(0, STEP))[:, None] * COLUMNS + columns[None, :]
        x = tl.load(logits_ptr + row * stride + ids, mask=ids < WIDTH, other=0.0).to(tl.float32)
        best = tl.maximum(best, tl.max(tl.where(ids < WIDTH, entry(x, ids), NOTHING), 0))
    tl.store(groups_ptr + (row * tl.num_programs(0) + block) * COLUMNS + columns, best)


@triton.jit
def pick_kernel(
    logits_ptr,
    stride,
    groups_ptr,
    ids_ptr,
    values_ptr,
    WIDTH: tl.constexpr,
    GROUPS: tl.constexpr,
    SETS: tl.constexpr,
    SET: tl.constexpr,
    GROUP: tl.constexpr,
    COLUMNS: tl.constexpr,
    COUNT: tl.constexpr,
    LANES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes, members = tl.arange(0, LANES), tl.arange(0, SET)[None, :] * SETS
    at = tl.arange(0, SETS)[:, None] + members
    every = tl.load(groups_ptr + row * GROUPS + at, mask=at < GROUPS, other=NOTHING)
    sets = tl.topk(tl.max(every, 1), LANES)
    at = (group_of(sets, GROUP, COLUMNS) % SETS)[:, None] + members
    mine = tl.load(groups_ptr + row * GROUPS + at, mask=(sets != NOTHING)[:, None] & (at < GROUPS), other=NOTHING)
    heads = tl.topk(tl.reshape(mine, [LANES * SET]), LANES)
    first = id_of(heads) // (GROUP * COLUMNS) * (GROUP * COLUMNS) + id_of(heads) % COLUMNS
    ids = first[:, None] + tl.arange(0, GROUP)[None, :] * COLUMNS
    real = (heads != NOTHING)[:, None] & (ids < WIDTH)
    x = tl.load(logits_ptr + row * stride + ids, mask=real, other=0.0).to(tl.float32)
    best = tl.topk(tl.reshape(tl.where(real, entry(x, ids), NOTHING), [LANES * GROUP]), LANES)
    rising = tl.sort(tl.where(lanes < COUNT, id_of(best), WIDTH))
    tl.store(ids_ptr + row * COUNT + lanes, rising, mask=lanes < COUNT)
    x = tl.load(logits_ptr + row * stride + rising, mask=lanes < COUNT, other=0.0).to(tl.float32)
    tl.store(values_ptr + row * COUNT + lanes, x, mask=lanes < COUNT)


@triton.jit
def argmax_kernel(groups_ptr, ids_ptr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    best = tl.max(tl.load(groups_ptr + row * GROUPS + at, mask=at < GROUPS, other=NOTHING), 0)
    tl.store(ids_ptr + row, id_of(best))


def grouped(logits: Tensor, groups: Tensor | None) -> Tensor:
    """The best entry of every group of each row, int64 [R, groups]."""
    rows, width = logits.shape
    blocks = triton.cdiv(width, GROUP * COLUMNS)
    groups = torch.empty(rows, blocks * COLUMNS, dtype=torch.int64, device=logits.device) if groups is None else groups
    groups_kernel[blocks, rows](
        logits, logits.stride(0), groups, width, GROUP, COLUMNS, STEP, num_warps=WARPS, enable_fp_fusion=False
    )
    return groups


def lanes_of(count: int) -> int:
    """What is sorted where so many are wanted: a power of two, and more than one."""
    lanes: int = max(2, triton.next_power_of_2(count))
    return lanes


def sets_of(size: int, lanes: int) -> tuple[int, int]:
    """How many sets so many groups are put into, and how many each has: as many as make both sorts equally long."""
    block = max(lanes, triton.next_power_of_2(size))
    each = 1 << (block // lanes).bit_length() // 2
    return block // each, each


def top(
    logits: Tensor, count: int, *, groups: Tensor | None = None, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The ids [R, count] int32 of the best logits of each row [R, V], rising, and these logits, float32.

    Equal logits go by lowest id; count is at most V. `groups` is room as `groups_of` makes it.
    """
    rows, width = logits.shape
    groups = grouped(logits, groups)
    if out is None:
        kinds = torch.int32, torch.float32
        ids, values = (torch.empty(rows, count, dtype=kind, device=logits.device) for kind in kinds)
    else:
        ids, values = out
    size, lanes = groups.shape[1], lanes_of(count)
    pick_kernel[rows,](
        logits,
        logits.stride(0),
        groups,
        ids,
        values,
        width,
        size,
        *sets_of(size, lanes),
        GROUP,
        COLUMNS,
        count,
        lanes,
        num_warps=PICK_WARPS,
        enable_fp_fusion=False,
    )
    return ids, values


def argmax(logits: Tensor, *, groups: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The id [R] int32 of the best logit of each row [R, V], the lowest among equals."""
    groups = grouped(logits, groups)
    out = torch.empty(len(logits), dtype=torch.int32, device=logits.device) if out is None else out
    size = groups.shape[1]
    argmax_kernel[len(logits),](groups, out, size, triton.next_power_of_2(size), num_warps=PICK_WARPS)
    return out


def groups_of(rows: int, width: int, device: torch.device) -> Tensor:
    """Room for the groups of so many rows of so many logits."""
    blocks = triton.cdiv(width, GROUP * COLUMNS)
    return torch.empty(rows, blocks * COLUMNS, dtype=torch.int64, device=device)


def top_torch(
    logits: Tensor, count: int, *, groups: Tensor | None = None, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The same by sorting whole rows."""
    ranked = torch.where(logits.isnan(), -torch.inf, logits)
    ids = ranked.sort(dim=1, descending=True, stable=True).indices[:, :count].sort(dim=1).values
    found = ids.to(torch.int32), logits.gather(1, ids).to(torch.float32)
    return found if out is None else (out[0].copy_(found[0]), out[1].copy_(found[1]))


def argmax_torch(logits: Tensor, *, groups: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The same by NumPy, whose argmax is the first one."""
    ranked = torch.where(logits.isnan(), -torch.inf, logits)
    found = torch.from_numpy(np.argmax(ranked.float().cpu().numpy(), axis=1))
    found = found.to(logits.device, torch.int32)
    return found if out is None else out.copy_(found)


def cases(kind: str, width: int, count: int) -> tuple[Case, ...]:
    """The three kernels as they are launched, over rows of a kind such as fp32."""
    size, lanes = triton.cdiv(width, GROUP * COLUMNS) * COLUMNS, lanes_of(count)
    sets, each = sets_of(size, lanes)
    logits = {"logits_ptr": f"*{kind}:16", "stride": "i32:16", "groups_ptr": "*i64:16"}
    shape = {"WIDTH": width, "GROUP": GROUP, "COLUMNS": COLUMNS}
    picked = shape | {"GROUPS": size, "SETS": sets, "SET": each, "COUNT": count, "LANES": lanes}
    out = {"ids_ptr": "*i32:16", "values_ptr": "*fp32:16"}
    whole = {"GROUPS": size, "BLOCK": triton.next_power_of_2(size)}
    ids = {"groups_ptr": "*i64:16", "ids_ptr": "*i32:16"}
    return (
        Case(f"groups {kind} {width}", groups_kernel, logits, shape | {"STEP": STEP}, WARPS, fusion=False),
        Case(f"top {count} of {kind} {width}", pick_kernel, logits | out, picked, PICK_WARPS, fusion=False),
        Case(f"argmax {width}", argmax_kernel, ids, whole, PICK_WARPS),
    )


AUDIT = (*cases("fp32", 248320, 16), *cases("fp32", 151936, 16))
