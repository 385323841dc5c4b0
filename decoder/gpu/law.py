"""From rows of logits to the laws that tokens are drawn from: temperature, top-k, top-p, min-p, in this order.

A law is never written down whole. The weight of an id is a whole number, 2^44 for the best one, so its sums are exact,
whatever their order; and what the filters leave are the ids down to a cut, which a search finds in a few passes over
the row, and above a floor. Ids go by falling logit, equal ones by rising id, as entries of `top`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case
from .top import NOTHING, entry, ordered

BLOCK = 2048  # ids at a time
WARPS = 16
WHOLE = tl.constexpr(float(2**44))  # the weight of the best id
HIGHEST = tl.constexpr(3.4028234663852886e38)
LOG2E = tl.constexpr(1.4426950408889634)
STEEPEST = tl.constexpr(float(2**100))  # rate: more than tells any two logits apart


class Filters(NamedTuple):
    """What each of R rows asks for; temperature zero is greedy, top_k zero or V keeps all."""

    temperature: Tensor  # [R] float64
    top_k: Tensor  # [R] int32
    top_p: Tensor  # [R] float64
    min_p: Tensor  # [R] float64


class Law(NamedTuple):
    """The laws of R rows: id v has probability weight / total if its entry is at least `cut` and its weight `floor`.

    Its weight is 2^44 exp2((logit - best) rate), rounded down.
    """

    best: Tensor  # [R] float32
    rate: Tensor  # [R] float32
    cut: Tensor  # [R] int64
    floor: Tensor  # [R] int64
    total: Tensor  # [R] int64


@triton.jit
def cleaned(x):
    """NaN is impossible."""
    return tl.where(x == x, x.to(tl.float32), float("-inf"))


@triton.jit
def weight(x, best, rate):
    """Of cleaned logits; a row without any possible id is flat. Beside infinity every number weighs nothing."""
    return (tl.exp2(tl.where(x == best, 0.0, x - best) * rate) * WHOLE).to(tl.int64)


@triton.jit
def logit_of(found):
    """The logit of an entry."""
    bits = (found >> 32).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def above(
    row_ptr, cut, best, rate, first, second, third, WEIGHED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Of the ids down to `cut`: how many there are from each of three entries on, and what they weigh."""
    lanes, none, zeros = tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int64)
    n1, n2, n3, w1, w2, w3 = none, none, none, zeros, zeros, zeros
    for begin in range(0, WIDTH, BLOCK):
        ids = begin + lanes
        x = cleaned(tl.load(row_ptr + ids, mask=ids < WIDTH, other=float("-inf")))
        found = tl.where(ids < WIDTH, entry(x, ids), NOTHING)
        found = tl.where(found >= cut, found, NOTHING)
        n1 += (found >= first).to(tl.int32)
        n2 += (found >= second).to(tl.int32)
        n3 += (found >= third).to(tl.int32)
        if WEIGHED:
            mass = weight(x, best, rate)
            w1 += tl.where(found >= first, mass, 0)
            w2 += tl.where(found >= second, mass, 0)
            w3 += tl.where(found >= third, mass, 0)
    counts = tl.sum(n1).to(tl.int64), tl.sum(n2).to(tl.int64), tl.sum(n3).to(tl.int64)
    return counts[0], counts[1], counts[2], tl.sum(w1), tl.sum(w2), tl.sum(w3)


@triton.jit
def search(
    row_ptr, cut, highest, many, best, rate, goal, WEIGHED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """The highest entry from which on, of `many` ids down to `cut`, there are `goal`, or as many as weigh that."""
    low, high, few = cut, highest + 1, many * 0  # ids from low on are enough, those from high on are not
    searching = many > 1
    while searching:
        bottom, top = logit_of(low), logit_of(high)
        second = ordered(bottom * 0.5 + top * 0.5)
        first, third = ordered(bottom * 0.75 + top * 0.25), ordered(bottom * 0.25 + top * 0.75)
        apart = (low < first) & (first < second) & (second < third) & (third < high)
        step = (high >> 2) - (low >> 2)
        first = tl.where(apart, first, low + step)
        second = tl.where(apart, second, low + ((high >> 1) - (low >> 1)))
        third = tl.where(apart, third, high - step)
        n1, n2, n3, w1, w2, w3 = above(row_ptr, cut, best, rate, first, second, third, WEIGHED, WIDTH, BLOCK)
        if WEIGHED:
            is1, is2, is3 = w1.to(tl.float64) >= goal, w2.to(tl.float64) >= goal, w3.to(tl.float64) >= goal
        else:
            is1, is2, is3 = n1.to(tl.float64) >= goal, n2.to(tl.float64) >= goal, n3.to(tl.float64) >= goal
        few = tl.where(is1, tl.where(is2, tl.where(is3, few, n3), n2), n1)
        high = tl.where(is1, tl.where(is2, tl.where(is3, high, third), second), first)
        many = tl.where(is3, n3, tl.where(is2, n2, tl.where(is1, n1, many)))
        low = tl.where(is3, third, tl.where(is2, second, tl.where(is1, first, low)))
        searching = (many - few > 1) & (low + 1 < high)
        if not WEIGHED:
            searching = searching & (many.to(tl.float64) != goal)
    return low


@triton.jit
def law_kernel(
    logits_ptr,
    stride,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    best_ptr,
    rate_ptr,
    cut_ptr,
    floor_ptr,
    total_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr, lanes = logits_ptr + row * stride, tl.arange(0, BLOCK)
    highest, least = tl.full([BLOCK], NOTHING, tl.int64), tl.full([BLOCK], HIGHEST, tl.float32)
    possible = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, WIDTH, BLOCK):
        ids = begin + lanes
        x = cleaned(tl.load(row_ptr + ids, mask=ids < WIDTH, other=float("-inf")))
        highest = tl.maximum(highest, tl.where(ids < WIDTH, entry(x, ids), NOTHING))
        least = tl.minimum(least, tl.where(x == float("-inf"), HIGHEST, x))
        possible += (x != float("-inf")).to(tl.int32)
    top, many = tl.max(highest, 0), tl.sum(possible, 0).to(tl.int64)
    best = logit_of(top)
    many = tl.where(many == 0, WIDTH, many)
    cut, floor = ordered(tl.minimum(tl.min(least, 0), best)), many * 0
    temperature = tl.load(temperature_ptr + row)
    warm = temperature > 0
    rate = tl.where(warm, tl.minimum(LOG2E / tl.where(warm, temperature, 1.0), STEEPEST), 1.0).to(tl.float32)
    if warm:
        count = tl.load(top_k_ptr + row).to(tl.int64)
        if (count > 0) & (count < many):
            cut = search(row_ptr, cut, top, many, best, rate, count.to(tl.float64), False, WIDTH, BLOCK)
            many = count
        share = tl.load(top_p_ptr + row)
        if share < 1:
            _, _, _, mass, _, _ = above(row_ptr, cut, best, rate, cut, cut, cut, True, WIDTH, BLOCK)
            cut = search(row_ptr, cut, top, many, best, rate, share * mass.to(tl.float64), True, WIDTH, BLOCK)
        part = tl.load(min_p_ptr + row) * WHOLE
        floor = part.to(tl.int64)
        floor += (floor.to(tl.float64) < part).to(tl.int64)
    else:
        cut = top
    sums = tl.zeros([BLOCK], tl.int64)
    for begin in range(0, WIDTH, BLOCK):
        ids = begin + lanes
        x = cleaned(tl.load(row_ptr + ids, mask=ids < WIDTH, other=float("-inf")))
        mass = weight(x, best, rate)
        sums += tl.where((ids < WIDTH) & (entry(x, ids) >= cut) & (mass >= floor), mass, 0)
    total = tl.sum(sums, 0)
    tl.store(best_ptr + row, best)
    tl.store(rate_ptr + row, rate)
    tl.store(cut_ptr + row, cut)
    tl.store(floor_ptr + row, floor)
    tl.store(total_ptr + row, total)


def law(logits: Tensor, filters: Filters, out: Law | None = None) -> Law:
    """The laws of rows [R, V] of logits, each by its own filters."""
    rows, width = logits.shape
    if out is None:
        kinds = (torch.float32, torch.float32, torch.int64, torch.int64, torch.int64)
        out = Law(*(torch.empty(rows, dtype=kind, device=logits.device) for kind in kinds))
    block = min(BLOCK, triton.next_power_of_2(width))
    law_kernel[rows,](logits, logits.stride(0), *filters, *out, width, block, num_warps=WARPS, enable_fp_fusion=False)
    return out


def law_torch(logits: Tensor, filters: Filters, out: Law | None = None) -> Law:
    """The same by sorting whole rows."""
    x, whole = cleaned_torch(logits), WHOLE.value
    entries = entries_of(x)
    ranked, ids = entries.sort(dim=1, descending=True)
    temperature = torch.where(filters.temperature > 0, filters.temperature, LOG2E.value)
    best, rate = x.amax(1), (LOG2E.value / temperature).clamp(max=STEEPEST.value).float()
    weights = weights_of(x, best, rate).gather(1, ids)
    places = torch.arange(x.shape[1], device=x.device)
    asked = torch.where(filters.top_k > 0, filters.top_k, x.shape[1])
    kept = places < torch.where(filters.temperature > 0, asked, 1)[:, None]
    mass = weights.where(kept, 0)
    before = (mass.cumsum(1) - mass).double()
    kept &= (before < (filters.top_p * mass.sum(1).double())[:, None]) | (filters.top_p >= 1)[:, None]
    cut = ranked.gather(1, kept.sum(1, keepdim=True) - 1)[:, 0]
    floor = (filters.min_p.where(filters.temperature > 0, 0.0) * whole).ceil().long()
    total = weights.where(kept & (weights >= floor[:, None]), 0).sum(1)
    found = Law(best, rate, cut, floor, total)
    return found if out is None else Law(*(place.copy_(side) for place, side in zip(out, found, strict=True)))


def cleaned_torch(logits: Tensor) -> Tensor:
    """The same, float32 [R, V]."""
    x = logits.float()
    return torch.where(x.isnan(), -torch.inf, x)


def entries_of(x: Tensor) -> Tensor:
    """What the kernels rank by, int64 [R, V], of cleaned logits."""
    bits = torch.where(x == 0, 0.0, x).view(torch.int32)
    ids = torch.arange(x.shape[1], device=x.device)
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32) | (0xFFFFFFFF - ids)


def weights_of(x: Tensor, best: Tensor, rate: Tensor) -> Tensor:
    """The weights, int64 [R, V], of cleaned logits."""
    away = torch.where(x == best[:, None], 0.0, x - best[:, None])
    weights: Tensor = (away * rate[:, None]).exp2() * WHOLE.value
    return weights.long()


def probabilities(logits: Tensor, law: Law) -> Tensor:
    """The laws as rows [R, V] float64: what they mean, for whoever wants to see all of it."""
    x = cleaned_torch(logits)
    weights = weights_of(x, law.best, law.rate)
    kept = (entries_of(x) >= law.cut[:, None]) & (weights >= law.floor[:, None])
    return weights.where(kept, 0).double() / law.total[:, None].double()


def case(kind: str, width: int) -> Case:
    """One kernel as it is launched, over rows of a kind such as fp32."""
    signature = {"logits_ptr": f"*{kind}:16", "stride": "i32:16", "top_k_ptr": "*i32:16"}
    signature |= dict.fromkeys(("temperature_ptr", "top_p_ptr", "min_p_ptr"), "*fp64:16")
    signature |= dict.fromkeys(("best_ptr", "rate_ptr"), "*fp32:16")
    signature |= dict.fromkeys(("cut_ptr", "floor_ptr", "total_ptr"), "*i64:16")
    return Case(f"law {kind} {width}", law_kernel, signature, {"WIDTH": width, "BLOCK": BLOCK}, WARPS, fusion=False)


AUDIT = (case("fp32", 248320), case("fp32", 151936))
