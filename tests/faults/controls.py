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

from .planting import planted
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


# Noise keyed by position alone is what the sampler-match rule of the reference has: N5 is N2 under its seed contract.
n5 = n2


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
