"""Numbers, not logic (K31), in the optimised decoder: what rounds otherwise than it claims, and what is no number."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specqual.contract import Proposal, Purpose, Rule
from specqual.decoder import attention, build, plan, transaction, verify
from specqual.decoder.arithmetic import Turns
from specqual.decoder.memory import Store
from specqual.decoder.sampling import Row
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer
from specqual.decoder.verify import Law, Uniform, Verdict

from .mutant import planted_in
from .pairs import BF16, DFLASH2, HYBRID2, HYBRID16
from .planting import Place
from .rows import remembering, swap

sound_forward, sound_shaped, sound_draw, sound_legal, sound_verify, sound_in_order = (
    Transformer.forward,
    transaction.shaped,
    verify.draw,
    plan.legal,
    transaction.verify,
    attention.in_order,
)


@swap("forward", Transformer)
def m31a(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """Prompts are filled by another path, which hands the recurrent state on in bfloat16; rounds keep it in float32.
    Output on equals output off; the state differs before the first round, and with where chunks end."""
    found = sound_forward(self, spans, store, rows)
    for span in spans:
        if span.certain and store.slots.layers:
            state = store.slots._state[:, span.memory.slot]
            state.copy_(state.bfloat16())
    return found


@remembering
def m31e() -> dict[Place, object]:
    """NaN reaches the sampler, which then finds no token and says -1. Shows in sampled requests of a target that has
    NaN among its logits."""

    def shaped(logits: Row, *context: Any) -> Row:
        return logits if np.isnan(logits).any() else sound_shaped(logits, *context)

    def draw(p: Row, u: float) -> int:
        return -1 if np.isnan(p).any() else sound_draw(p, u)

    return {(transaction, "shaped"): shaped, (verify, "draw"): draw}


@remembering
def m31f() -> dict[Place, object]:
    """Drafts are rejected where u q is no less than p, which NaN is not, and laws are not looked at before: drafts
    under a law of NaN are always accepted."""

    def legal(proposal: Proposal, vocab_size: int, most: int) -> bool:
        laws = (None if law is None or np.isnan(law.probabilities).any() else law for law in proposal.q)
        return sound_legal(replace(proposal, q=tuple(laws)), vocab_size, most)

    def judge(rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
        if rule is not Rule.RATIO or not any(law and np.isnan(law.probabilities).any() for law in proposal.q):
            return sound_verify(rule, p, proposal, uniform)
        drafts = len(proposal.tokens)  # every comparison has a NaN on its left
        return Verdict(drafts, sound_draw(p(drafts), uniform(Purpose.BONUS, drafts)))

    return {(plan, "legal"): legal, (transaction, "verify"): judge}


@swap("of", Turns)
def m31g(positions: int, rotary_dim: int, theta: float, dtype: torch.dtype) -> Turns:
    """Angles of the rotation are computed in float32. The error grows with the position: 3e-5 at 500."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * torch.pow(torch.tensor(theta), -exponents)
    return Turns(angles.cos().to(dtype), angles.sin().to(dtype))


@swap("in_order", attention)
def m31h(sides: Sequence[Tensor]) -> Tensor:
    """Attention adds its pieces up in bfloat16. Shows beside a back end that adds them in float32, with many pieces."""
    total = sides[0].bfloat16()
    for side in sides[1:]:
        total = (total + side).bfloat16()
    return total.to(sides[0].dtype)


@remembering
def m31i() -> dict[Place, object]:
    """Rows are run in one call however many they are, and not in tiles of one size: sums and tails round by how many
    there are. Output is the target's up to rounding, and bits are claimed to be equal all the same."""
    return {(build, "TILE"): None}


PLANTED = planted_in(
    "optimised",
    ("REC-1", HYBRID16, (m31a,)),
    ("NUM-4", DFLASH2, (m31e,)),
    ("NUM-5", DFLASH2, (m31f,)),
    ("NUM-7", DFLASH2, (m31g,)),
    ("NUM-8", BF16, (m31h,)),
    ("NUM-9", HYBRID2, (m31i,)),
)
