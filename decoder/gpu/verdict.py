"""How many drafts are accepted, and which token follows, for a whole batch on the device.

Greedy rows, and the sampler-match rule, compare drafts with what would be chosen anyway (`matched`). The ratio and
one-hot rules (`judge`) test one number per draft against p and q, and then draw one token: from what q leaves of p at
the first rejection, or from p behind the last draft. Weights are the whole numbers of `law`, so what is left of them is
exact.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specqual.contract import CompactLaw, Proposal, Purpose, Rule

from .. import verify
from ..sampling import draw as draw_row
from .audit import Case
from .law import Law, cleaned, probabilities, weight
from .top import entry

WARPS = 16
BLOCK = 4096  # ids at a time


class Verdicts(NamedTuple):
    """Of each of B samples the number of accepted drafts, and the token behind them."""

    accepted: Tensor  # [B] int32
    token: Tensor  # [B] int32


class Drafted(NamedTuple):
    """K drafts of each of B samples, those that are there first, and q over C candidates of each.

    One-hot laws have one candidate, the draft itself. Where there are too few, any id without mass fills up.
    """

    tokens: Tensor  # [B, K] int32
    ids: Tensor  # [B, K, C] int32
    q: Tensor  # [B, K, C] float64


class Uniforms(NamedTuple):
    """The numbers of each slot, in [0, 1)."""

    accept: Tensor  # [B, K] float64
    residual: Tensor  # [B, K] float64
    bonus: Tensor  # [B, K + 1] float64


@triton.jit
def matched_kernel(
    chosen_ptr, first_ptr, tokens_ptr, accepted_ptr, token_ptr, SLOTS: tl.constexpr, LANES: tl.constexpr
):
    sample, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, LANES)
    first = tl.load(first_ptr + sample)
    count = tl.load(first_ptr + sample + 1) - first - 1
    if count >= 0:
        there = lanes < count
        drafts = tl.load(tokens_ptr + sample * SLOTS + lanes, mask=there, other=0)
        chosen = tl.load(chosen_ptr + first + lanes, mask=there, other=0)
        accepted = tl.min(tl.where(there & (drafts != chosen), lanes, count), 0)
        tl.store(accepted_ptr + sample, accepted)
        tl.store(token_ptr + sample, tl.load(chosen_ptr + first + accepted))


@triton.jit
def drawn(
    row_ptr, best, rate, cut, floor, mass, u, ids, taken, WIDTH: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr
):
    """The lowest id v with u < P(id <= v), where `taken` [COUNT] of the weights of `ids` is missing; `mass` is left."""
    lanes, places = tl.arange(0, BLOCK), tl.arange(0, COUNT)
    goal = tl.minimum((u * mass.to(tl.float64)).to(tl.int64), mass - 1)
    begin, passed, token = 0, goal * 0, -1
    while (token < 0) & (begin < WIDTH):
        here = begin + lanes
        x = cleaned(tl.load(row_ptr + here, mask=here < WIDTH, other=float("-inf")))
        left = weight(x, best, rate)
        left = tl.where((here < WIDTH) & (entry(x, here) >= cut) & (left >= floor), left, 0)
        gone = tl.where((ids >= begin) & (ids < begin + BLOCK), taken, 0)
        total = passed + tl.sum(left, 0) - tl.sum(gone, 0)
        if total > goal:
            for place in range(COUNT):
                its = tl.sum(tl.where(places == place, ids, 0), 0)
                left -= tl.where(here == its, tl.sum(tl.where(places == place, gone, 0), 0), 0)
            token = begin + tl.sum((passed + tl.cumsum(left, 0) <= goal).to(tl.int32), 0)
        passed = total
        begin += BLOCK
    return token


@triton.jit
def judge_kernel(
    logits_ptr,
    stride,
    first_ptr,
    best_ptr,
    rate_ptr,
    cut_ptr,
    floor_ptr,
    total_ptr,
    tokens_ptr,
    ids_ptr,
    q_ptr,
    accept_ptr,
    residual_ptr,
    bonus_ptr,
    accepted_ptr,
    token_ptr,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    LANES: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample, lanes, places = tl.program_id(0).to(tl.int64), tl.arange(0, LANES), tl.arange(0, COUNT)
    first = tl.load(first_ptr + sample).to(tl.int64)
    count = (tl.load(first_ptr + sample + 1) - first - 1).to(tl.int32)
    if count >= 0:
        there = lanes < count
        drafts = tl.load(tokens_ptr + sample * SLOTS + lanes, mask=there, other=0)
        best = tl.load(best_ptr + first + lanes, mask=there, other=0.0)
        rate = tl.load(rate_ptr + first + lanes, mask=there, other=1.0)
        x = cleaned(tl.load(logits_ptr + (first + lanes) * stride + drafts, mask=there, other=0.0))
        mass = weight(x, best, rate)
        kept = entry(x, drafts) >= tl.load(cut_ptr + first + lanes, mask=there, other=0)
        kept &= mass >= tl.load(floor_ptr + first + lanes, mask=there, other=0)
        total = tl.load(total_ptr + first + lanes, mask=there, other=1)
        p = tl.where(kept, mass, 0).to(tl.float64) / total.to(tl.float64)
        at = (sample * SLOTS + lanes)[:, None] * CANDIDATES + places[None, :]
        real = there[:, None] & (places < CANDIDATES)[None, :]
        ids = tl.load(ids_ptr + at, mask=real, other=-1)
        q = tl.sum(tl.where(ids == drafts[:, None], tl.load(q_ptr + at, mask=real, other=0.0), 0.0), 1)
        u = tl.load(accept_ptr + sample * SLOTS + lanes, mask=there, other=0.0)
        accepted = tl.min(tl.where(there & ((u * q < p) == 0), lanes, count), 0)  # NaN rejects, and takes nothing

        row, slot = first + accepted, sample * SLOTS + accepted
        rejected = accepted < count
        best, rate = tl.load(best_ptr + row), tl.load(rate_ptr + row)
        cut, floor, mass = tl.load(cut_ptr + row), tl.load(floor_ptr + row), tl.load(total_ptr + row)
        real = rejected & (places < CANDIDATES)
        ids = tl.load(ids_ptr + slot * CANDIDATES + places, mask=real, other=-1)
        q = tl.load(q_ptr + slot * CANDIDATES + places, mask=real, other=0.0)
        x = cleaned(tl.load(logits_ptr + row * stride + ids, mask=real, other=0.0))
        theirs = weight(x, best, rate)
        theirs = tl.where(real & (entry(x, ids) >= cut) & (theirs >= floor), theirs, 0)
        taken = tl.where(q >= 1, mass, (tl.where(q == q, q, 0.0) * mass.to(tl.float64)).to(tl.int64))
        taken = tl.minimum(theirs, taken)
        left = mass - tl.sum(taken, 0)
        taken = tl.where(left > 0, taken, 0)  # where nothing is left, p itself
        mass = tl.where(left > 0, left, mass)
        number = tl.load(bonus_ptr + sample * (SLOTS + 1) + accepted)
        number = tl.where(rejected, tl.load(residual_ptr + slot, mask=rejected, other=0.0), number)
        tl.store(accepted_ptr + sample, accepted)
        token = drawn(logits_ptr + row * stride, best, rate, cut, floor, mass, number, ids, taken, WIDTH, COUNT, BLOCK)
        tl.store(token_ptr + sample, token)


@triton.jit
def draw_kernel(
    logits_ptr,
    stride,
    best_ptr,
    rate_ptr,
    cut_ptr,
    floor_ptr,
    total_ptr,
    uniform_ptr,
    token_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    best, rate = tl.load(best_ptr + row), tl.load(rate_ptr + row)
    cut, floor, mass = tl.load(cut_ptr + row), tl.load(floor_ptr + row), tl.load(total_ptr + row)
    nobody, nothing = tl.full([1], -1, tl.int32), tl.full([1], 0, tl.int64)
    u = tl.load(uniform_ptr + row)
    row_ptr = logits_ptr + row * stride
    token = drawn(row_ptr, best, rate, cut, floor, mass, u, nobody, nothing, WIDTH, 1, BLOCK)
    tl.store(token_ptr + row, token)


def verdicts(count: int, device: torch.device, out: Verdicts | None) -> Verdicts:
    if out is not None:
        return out
    return Verdicts(*(torch.empty(count, dtype=torch.int32, device=device) for _ in range(2)))


def matched(chosen: Tensor, first: Tensor, tokens: Tensor, out: Verdicts | None = None) -> Verdicts:
    """Accept drafts `tokens` [B, K] as long as they are what is `chosen` [R] in their slots anyway.

    Rows first[b] to first[b + 1] are those behind the anchor and the drafts of sample b; one without rows has no
    verdict.
    """
    out, slots = verdicts(len(tokens), chosen.device, out), tokens.shape[1]
    matched_kernel[len(tokens),](chosen, first, tokens, *out, slots, triton.next_power_of_2(max(1, slots)), num_warps=1)
    return out


def judge(
    logits: Tensor, first: Tensor, law: Law, drafted: Drafted, uniforms: Uniforms, out: Verdicts | None = None
) -> Verdicts:
    """Accept draft d of a slot if u q(d) < p(d); then draw from max(p - q, 0), or behind the last draft from p.

    `law` is p behind the anchor and each draft, of rows as in `matched`. Greedy rows come to the same, since their laws
    are one-hot.
    """
    samples, slots, count = drafted.ids.shape
    out, width = verdicts(samples, logits.device, out), logits.shape[1]
    lanes, places = (triton.next_power_of_2(max(1, size)) for size in (slots, count))
    judge_kernel[samples,](
        logits,
        logits.stride(0),
        first,
        *law,
        *drafted,
        *uniforms,
        *out,
        width,
        slots,
        count,
        lanes,
        places,
        min(BLOCK, triton.next_power_of_2(width)),
        num_warps=WARPS,
        enable_fp_fusion=False,
    )
    return out


def draw(logits: Tensor, law: Law, uniform: Tensor, out: Tensor | None = None) -> Tensor:
    """A token [R] int32 for each row, the lowest id v with u < P(id <= v); `uniform` [R] float64."""
    out = torch.empty(len(logits), dtype=torch.int32, device=logits.device) if out is None else out
    width = logits.shape[1]
    block = min(BLOCK, triton.next_power_of_2(width))
    draw_kernel[len(logits),](
        logits, logits.stride(0), *law, uniform, out, width, block, num_warps=WARPS, enable_fp_fusion=False
    )
    return out


def matched_torch(chosen: Tensor, first: Tensor, tokens: Tensor, out: Verdicts | None = None) -> Verdicts:
    """The same by the host's rule, one sample after the other."""
    out, firsts = verdicts(len(tokens), chosen.device, out), first.tolist()
    for sample, (begin, end) in enumerate(pairwise(firsts)):
        if begin < end:
            row = chosen[begin:end].tolist()
            found = verify.matched(row.__getitem__, tokens[sample, : len(row) - 1].tolist())
            out.accepted[sample], out.token[sample] = found.accepted, found.token
    return out


def judge_torch(
    logits: Tensor, first: Tensor, law: Law, drafted: Drafted, uniforms: Uniforms, out: Verdicts | None = None
) -> Verdicts:
    """The same by the host's rule, one sample after the other."""
    out, firsts = verdicts(len(drafted.tokens), logits.device, out), first.tolist()
    p = probabilities(logits, law).cpu().numpy()
    for sample, (begin, end) in enumerate(pairwise(firsts)):
        if begin == end:
            continue
        tokens, ids, q = (side[sample, : end - begin - 1].tolist() for side in drafted)
        pairs = [[pair for pair in zip(*slot, strict=True) if pair[1]] for slot in zip(ids, q, strict=True)]
        laws = tuple(CompactLaw(*map(tuple, zip(*alive, strict=True))) for alive in pairs)
        kinds = Purpose.ACCEPT, Purpose.RESIDUAL, Purpose.BONUS
        numbers = {(kind, slot): u for kind, x in zip(kinds, uniforms, strict=True) for slot, u in enumerate(x[sample])}
        rows, proposal = p[begin:end], Proposal(tuple(tokens), laws)
        found = verify.verify(Rule.RATIO, rows.__getitem__, proposal, lambda *key: float(numbers[key]))  # noqa: B023
        out.accepted[sample], out.token[sample] = found.accepted, found.token
    return out


def draw_torch(logits: Tensor, law: Law, uniform: Tensor, out: Tensor | None = None) -> Tensor:
    """The same by the host's rule, one row after the other."""
    rows = zip(probabilities(logits, law).cpu().numpy(), uniform.tolist(), strict=True)
    found = torch.tensor([draw_row(p, u) for p, u in rows], dtype=torch.int32, device=logits.device)
    return found if out is None else out.copy_(found)


def cases(width: int, slots: int, count: int) -> tuple[Case, ...]:
    """The kernels as they are launched, for so many slots and candidates."""
    logits = {"logits_ptr": "*fp32:16", "stride": "i32:16", "first_ptr": "*i32:16"}
    law = dict.fromkeys(("best_ptr", "rate_ptr"), "*fp32:16")
    law |= dict.fromkeys(("cut_ptr", "floor_ptr", "total_ptr"), "*i64:16")
    out = dict.fromkeys(("accepted_ptr", "token_ptr", "tokens_ptr", "ids_ptr"), "*i32:16")
    numbers = dict.fromkeys(("q_ptr", "accept_ptr", "residual_ptr", "bonus_ptr", "uniform_ptr"), "*fp64:16")
    known = logits | law | out | numbers | {"chosen_ptr": "*i32:16"}
    lanes, places = (triton.next_power_of_2(size) for size in (slots, count))

    def made(name: str, kernel: triton.runtime.JITFunction, warps: int, **constants: int) -> Case:
        signature = {argument: known[argument] for argument in kernel.arg_names if argument in known}
        return Case(f"{name}, {slots} slots of {count}", kernel, signature, constants, warps, fusion=False)

    sizes = {"WIDTH": width, "BLOCK": BLOCK}
    lengths = {"SLOTS": slots, "LANES": lanes}
    return (
        made("matched", matched_kernel, 1, **lengths),
        made("judge", judge_kernel, WARPS, **sizes, **lengths, CANDIDATES=count, COUNT=places),
        made("draw", draw_kernel, WARPS, **sizes),
    )


AUDIT = (*cases(248320, 7, 16), *cases(248320, 15, 1))
