"""The candidate selector: a walk over the slots of each block that scores what may stand there behind what was chosen.

One program walks one block. What a slot needs of its own candidates does not depend on the walk, so those loads run
ahead of it; what is drawn is drawn from exactly the q that is handed on.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case

WARPS = 8


class Candidates(NamedTuple):
    """What may stand in each of K slots of B blocks: C ids, rising, and their logits."""

    ids: Tensor  # [B, K, C] int32
    logits: Tensor  # [B, K, C] float32


class Drafts(NamedTuple):
    """What was chosen, and the law q of each slot over its candidates; greedy ones have a one-hot law."""

    tokens: Tensor  # [B, K] int32
    q: Tensor  # [B, K, C] float64


@triton.jit
def selector_kernel(
    anchors_ptr,
    ids_ptr,
    logits_ptr,
    joint_ptr,
    before_ptr,
    after_ptr,
    temperature_ptr,
    uniform_ptr,
    tokens_ptr,
    q_ptr,
    SLOTS: tl.constexpr,
    COUNT: tl.constexpr,
    RANK: tl.constexpr,
    PAIRED: tl.constexpr,
    LANES: tl.constexpr,
    DIMS: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64)
    lanes, dims = tl.arange(0, LANES), tl.arange(0, DIMS)
    real = lanes < COUNT
    temperature = tl.load(temperature_ptr + block)
    token = tl.load(anchors_ptr + block)
    ids, score, joint, after = slot_of(
        block * SLOTS, ids_ptr, logits_ptr, joint_ptr, after_ptr, COUNT, RANK, PAIRED, LANES, DIMS
    )
    for slot in range(SLOTS):
        row = block * SLOTS + slot
        next_ids, next_score, next_joint, next_after = slot_of(
            block * SLOTS + tl.minimum(slot + 1, SLOTS - 1), ids_ptr, logits_ptr, joint_ptr, after_ptr, COUNT, RANK,
            PAIRED, LANES, DIMS,
        )  # fmt: skip
        if PAIRED:
            before = tl.load(before_ptr + token.to(tl.int64) * RANK + dims, mask=dims < RANK, other=0.0).to(tl.float32)
            score += tl.sum(after * (before * joint)[None, :], 1)
        best = tl.argmax(tl.where(score == score, score, float("-inf")), 0)  # the first among equals, and never NaN
        q, chosen = tl.where(lanes == best, 1.0, 0.0).to(tl.float64), best
        if temperature > 0:  # what a greedy walk leaves out costs most where float64 is slow
            height = tl.max(score, 0).to(tl.float64)
            weight = tl.where(real, tl.exp((score.to(tl.float64) - height) / temperature.to(tl.float64)), 0.0)
            q = weight / tl.sum(weight, 0)
            passed = tl.sum((tl.cumsum(q, 0) <= tl.load(uniform_ptr + row)).to(tl.int32), 0)
            last = tl.max(tl.where(q > 0, lanes, 0), 0)  # however the last sum was rounded
            chosen = tl.minimum(passed, last)
        token = tl.sum(tl.where(lanes == chosen, ids, 0), 0)
        tl.store(tokens_ptr + row, token)
        tl.store(q_ptr + row * COUNT + lanes, q, mask=real)
        ids, score, joint, after = next_ids, next_score, next_joint, next_after


@triton.jit
def slot_of(
    row,
    ids_ptr,
    logits_ptr,
    joint_ptr,
    after_ptr,
    COUNT: tl.constexpr,
    RANK: tl.constexpr,
    PAIRED: tl.constexpr,
    LANES: tl.constexpr,
    DIMS: tl.constexpr,
):
    """The candidates of a slot, their logits, what joins their codes with those in front, and their codes."""
    lanes, dims = tl.arange(0, LANES), tl.arange(0, DIMS)
    real, inside = lanes < COUNT, dims < RANK
    ids = tl.load(ids_ptr + row * COUNT + lanes, mask=real, other=0)
    score = tl.load(logits_ptr + row * COUNT + lanes, mask=real, other=float("-inf"))
    joint, after = tl.zeros([DIMS], tl.float32), tl.zeros([LANES, DIMS], tl.float32)
    if PAIRED:
        at = ids.to(tl.int64)[:, None] * RANK + dims[None, :]
        after = tl.load(after_ptr + at, mask=real[:, None] & inside[None, :], other=0.0).to(tl.float32)
        joint = tl.load(joint_ptr + row * RANK + dims, mask=inside, other=0.0).to(tl.float32)
    return ids, score, joint, after


def select(
    anchors: Tensor,
    candidates: Candidates,
    joint: Tensor | None,
    codes: tuple[Tensor, Tensor] | None,
    temperature: Tensor,
    uniform: Tensor,
    out: Drafts | None = None,
) -> Drafts:
    """Choose a token for each of K slots of B blocks, one behind the other.

    A candidate's score is its logit, and the sum over r of before[token in front] * joint * after[candidate]: `joint`
    [B, K, rank] float32, `codes` before and after [V, rank]; without them the logit alone. The anchor [B] int32 stands
    in front of the first slot. Temperature [B] float32 zero takes the best score, the lowest id among equals; else q is
    softmax(score / temperature), and `uniform` [B, K] float64 draws from it, by rising id.
    """
    blocks, slots, count = candidates.ids.shape
    device, logits = anchors.device, candidates.logits
    rank = 1 if joint is None else joint.shape[2]
    if out is None:
        tokens = torch.empty(blocks, slots, dtype=torch.int32, device=device)
        out = Drafts(tokens, torch.empty(blocks, slots, count, dtype=torch.float64, device=device))
    before, after = (logits, logits) if codes is None else codes
    selector_kernel[blocks,](
        anchors,
        *candidates,
        logits if joint is None else joint,
        before,
        after,
        temperature,
        uniform,
        *out,
        slots,
        count,
        rank,
        joint is not None,
        triton.next_power_of_2(count),
        triton.next_power_of_2(rank),
        num_warps=WARPS,
        enable_fp_fusion=False,
    )
    return out


def select_torch(
    anchors: Tensor,
    candidates: Candidates,
    joint: Tensor | None,
    codes: tuple[Tensor, Tensor] | None,
    temperature: Tensor,
    uniform: Tensor,
    out: Drafts | None = None,
) -> Drafts:
    """The same in float64, slot after slot."""
    tokens, laws, token = list[Tensor](), list[Tensor](), anchors.long()
    greedy = (temperature <= 0)[:, None]
    for slot in range(candidates.ids.shape[1]):
        ids, score = candidates.ids[:, slot].long(), candidates.logits[:, slot].double()
        if joint is not None and codes is not None:
            before, after = (side.double() for side in codes)
            score = score + ((before[token] * joint[:, slot].double())[:, None] * after[ids]).sum(-1)
        best = torch.where(score.isnan(), -torch.inf, score).cpu().numpy().argmax(1)
        hot = torch.nn.functional.one_hot(torch.from_numpy(best).to(ids.device), ids.shape[1]).double()
        q = torch.where(greedy, hot, (score / temperature.double().masked_fill(greedy[:, 0], 1.0)[:, None]).softmax(-1))
        place = (q.cumsum(-1) <= uniform[:, slot, None]).sum(-1)
        last = (q > 0).long().mul(torch.arange(ids.shape[1], device=ids.device)).amax(-1)
        token = ids.gather(1, torch.minimum(place, last)[:, None])[:, 0]
        tokens.append(token.int())
        laws.append(q)
    found = Drafts(torch.stack(tokens, 1), torch.stack(laws, 1))
    return found if out is None else Drafts(out.tokens.copy_(found.tokens), out.q.copy_(found.q))


def case(codes: str, slots: int, count: int, rank: int) -> Case:
    """One kernel as it is launched, with codes of a kind such as bf16."""
    signature = {"anchors_ptr": "*i32:16", "ids_ptr": "*i32:16", "tokens_ptr": "*i32:16", "q_ptr": "*fp64:16"}
    signature |= dict.fromkeys(("logits_ptr", "joint_ptr", "temperature_ptr"), "*fp32:16")
    signature |= {"before_ptr": f"*{codes}:16", "after_ptr": f"*{codes}:16", "uniform_ptr": "*fp64:16"}
    constants = {"SLOTS": slots, "COUNT": count, "RANK": rank, "PAIRED": True, "LANES": count, "DIMS": rank}
    return Case(f"selector {codes}, {slots} slots", selector_kernel, signature, constants, WARPS, fusion=False)


AUDIT = tuple(case(codes, slots, 16, 256) for codes in ("bf16", "fp32") for slots in (7, 15))
