"""Decoders that look unusual and are right: a suite that flags one of them is wrong."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from specqual.contract import Decoder, Greedy, Proposal, Purpose, Rule, Sampling, Setup
from specqual.reference import ReferenceDecoder, make, transaction
from specqual.reference.drafter import DraftContext
from specqual.reference.forward import Forward, Target
from specqual.reference.ngram import NgramDrafter
from specqual.reference.sampling import Law, draw
from specqual.reference.table import TableTarget
from specqual.reference.target import TransformerTarget
from specqual.reference.verify import Uniform, Verdict, judged, verify

from .mutant import Control
from .pairs import DFLASH2, FLAT, LOOKUP
from .planting import black_box, planted
from .verification import block_length


def n1(setup: Setup) -> ReferenceDecoder:
    """Drafts count as certain whatever they were drawn from: accept with p(d), else draw from p without d."""
    return make(replace(setup, rule=Rule.ONE_HOT))


def n2(setup: Setup) -> ReferenceDecoder:
    """A draft stays if it equals the target's own draw, and that draw is what is emitted on a mismatch."""
    return make(replace(setup, rule=Rule.SAMPLER_MATCH))


def n3(setup: Setup) -> Decoder:
    """A drafter that knows nothing: the same few tokens in a circle, and every third time none at all."""

    def circle(
        self: NgramDrafter, context: DraftContext, length: int, sampling: Sampling, uniform: Callable[[int], float]
    ) -> Proposal:
        place, size = len(context.tokens), context.target.vocab_size
        return Proposal.certain(tuple((7 * (place + slot)) % size for slot in range(length if place % 3 else 0)))

    lookup = {} if setup.rule is Rule.NONE else {"ngram": 3}
    return planted(replace(setup, draft=None, options=lookup), {(NgramDrafter, "propose"): circle})


def n4(setup: Setup) -> Decoder:
    """The logits are off by 1e-7 of themselves, another way in every pass: they might have been float32."""

    def disturbed(sound: Callable[[Target, Sequence[int]], Forward]) -> Callable[[Target, Sequence[int]], Forward]:
        def forward(self: Target, ids: Sequence[int]) -> Forward:
            found = sound(self, ids)
            noise = torch.rand(found.logits.shape, generator=torch.Generator().manual_seed(len(ids)))
            return replace(found, logits=found.logits * (1 + 1e-7 * (2 * noise - 1)))

        return forward

    kinds = (TransformerTarget, TableTarget)
    decoder = planted(setup, {(kind, "forward"): disturbed(kind.forward) for kind in kinds})
    decoder.claims = replace(decoder.claims, dtype="float32", greedy=Greedy(bitwise=False))
    return decoder


def n5(setup: Setup) -> ReferenceDecoder:
    """Noise is keyed by position alone, so sampled output is the same for every K: what sampler-match has there."""
    return make(replace(setup, rule=Rule.SAMPLER_MATCH))


def n7(setup: Setup) -> Decoder:
    """Block verification: other drafts are accepted than by the token-wise rule, the joint law is the same."""
    decoder = planted(replace(setup, rule=Rule.RATIO), {(transaction, "verify"): _block})
    if decoder.claims.rule is Rule.RATIO:
        decoder.claims = replace(decoder.claims, rule=Rule.BLOCK)
    return decoder


def _block(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Sequence[Law | None], uniform: Uniform) -> Verdict:
    if rule is not Rule.BLOCK or not drafts:
        return verify(Rule.RATIO if rule is Rule.BLOCK else rule, p, drafts, q, uniform)
    laws = [judged(Rule.RATIO, law, draft, p[slot]) for slot, (law, draft) in enumerate(zip(q, drafts, strict=True))]
    length, behind = block_length(p, drafts, laws, uniform)
    if length == len(drafts):
        return Verdict(length, draw(p[length], uniform(Purpose.BONUS, length)))
    left = behind[length]
    mass = left.sum()
    return Verdict(length, draw(left / mass if mass else p[length], uniform(Purpose.RESIDUAL, length)))


n7_black_box = black_box(n7)
CLAUSES = ("LIVE-1", "LIVE-3", "GE-1", "GE-4", "LAW-2", "LAW-3", "RNG-1", "RNG-3", "FIN-2")
NO_KEYS = frozenset({"LAW-2", "LAW-3", "RNG-1"})  # the contract has no keys for a block's coins
CONTROLS = (
    Control(n1, DFLASH2, CLAUSES),
    Control(n2, DFLASH2, CLAUSES),
    Control(n3, LOOKUP, CLAUSES, frozenset({"LIVE-1", "GE-1", "LAW-2"})),  # hardly anything of it is ever accepted
    Control(n4, DFLASH2, CLAUSES),
    Control(n4, FLAT, ("GE-1",)),
    Control(n5, DFLASH2, ("RNG-2", "GE-3")),
    Control(n7, DFLASH2, CLAUSES, NO_KEYS),
    Control(n7_black_box, DFLASH2, ("LAW-6",)),
)
