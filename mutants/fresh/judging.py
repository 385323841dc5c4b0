"""Faults of verification: which row judges a draft, which law it came from, which number decides (K01 to K05)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specqual.contract import Proposal, Purpose, Rule, Sampling
from specqual.decoder import choice, drafts, transaction
from specqual.decoder.choice import Scores, walk
from specqual.decoder.memory import Store
from specqual.decoder.row import Row
from specqual.decoder.sampling import Row as Numbers
from specqual.decoder.sampling import draw, law
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer
from specqual.decoder.tile import TILE
from specqual.decoder.transaction import Terms, numbers
from specqual.decoder.verify import Law, Uniform, Verdict, verify

from ..rows import swap
from .parts import DENSE, HYBRID, WINDOW, Pair, Seat, compact, ratio, residual, theirs, verifying

FORWARD = Transformer.forward


@swap("matched", transaction)
def f01a(choose: Callable[[int], int], drafts: Sequence[int]) -> Verdict:
    """The greedy comparison is unrolled for three drafts and lets a fourth pass: shows where only that one is wrong."""
    for slot, draft in enumerate(drafts[:3]):
        if (token := choose(slot)) != draft:
            return Verdict(slot, token)
    return Verdict(len(drafts), choose(len(drafts)))


@swap("forward", Transformer)
def f01b(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """The head's second tile begins one row early: where it cuts through a sample's drafts, a draft is compared with
    the row before its own. Shows with more than three samples in a batch."""
    found, told, done = FORWARD(self, spans, store, rows), [], 0
    for logits in found.logits:
        border = -done % TILE
        done += len(logits)
        if 0 < border < len(logits):
            logits = logits.clone()
            logits[border] = logits[border - 1]
        told.append(logits)
    return found._replace(logits=tuple(told))


@swap("verify", transaction)
def f01c(rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
    """A block with a single draft is not compared with anything: shows when sampling, two tokens before the budget
    ends or with a draft length of one."""
    if len(proposal.tokens) == 1:
        return Verdict(1, draw(p(1), uniform(Purpose.BONUS, 1)))
    return verify(rule, p, proposal, uniform)


@swap("walk", drafts)
def f02a(anchor: int, length: int, scores: Scores, sampling: Sampling, uniform: Callable[[int], float]) -> Proposal:
    """q is kept for the chain of best drafts, while each draft is drawn behind the one that was drawn: shows from the
    second slot on, when sampling with a selector, once a draft is not the best one."""
    found, laws, best = walk(anchor, length, scores, sampling, uniform), [], anchor
    if sampling.greedy:
        return found
    for slot in range(length):
        ids, row = scores(slot, best)
        laws.append(compact(ids, law(row, sampling)))
        best = int(ids[np.argmax(row)])
    return replace(found, q=tuple(laws))


@swap("walk", drafts)
def f02b(anchor: int, length: int, scores: Scores, sampling: Sampling, uniform: Callable[[int], float]) -> Proposal:
    """q is divided by the temperature in the first slot only: shows at temperatures other than one, from the second
    draft on."""
    found, laws, before = walk(anchor, length, scores, sampling, uniform), [], anchor
    if sampling.greedy:
        return found
    for slot, token in enumerate(found.tokens):
        ids, row = scores(slot, before)
        laws.append(compact(ids, law(row, replace(sampling, temperature=1.0) if slot else sampling)))
        before = token
    return replace(found, q=tuple(laws))


@swap("draw", choice)
def f02c(p: Numbers, u: float) -> int:
    """A drafter that is surer than 0.8 of its best token takes it without a draw, and still reports the law: shows when
    sampling where drafts are nearly certain."""
    return int(np.argmax(p)) if p.max() > 0.8 else draw(p, u)


@swap("numbers", transaction)
def f03a(row: Row, terms: Terms, first: int) -> Uniform:
    """The bonus token is drawn with the number that accepted the last draft: shows at full acceptance only."""
    sound = numbers(row, terms, first)
    if terms.rule is Rule.SAMPLER_MATCH:
        return sound
    return lambda purpose, slot: (
        sound(Purpose.ACCEPT, slot - 1) if slot and purpose is Purpose.BONUS else sound(purpose, slot)
    )


@swap("numbers", transaction)
def f03b(row: Row, terms: Terms, first: int) -> Uniform:
    """One number decides the acceptance of all drafts of a round: shows from the second draft on."""
    sound = numbers(row, terms, first)
    return lambda purpose, slot: sound(purpose, 0 if purpose is Purpose.ACCEPT else slot)


@swap("numbers", transaction)
def f03c(row: Row, terms: Terms, first: int) -> Uniform:
    """The samples of a request draw their first token with the number of sample 0, whose prompt pass serves them all:
    shows in the first token of n > 1."""
    return numbers(row if row.rounds else replace(row, index=0), terms, first)


@swap("verify", transaction)
def f04a(rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
    """A draft is accepted by the product of all ratios so far, as in verification of a whole block, while the
    correction is that of a single token: shows when sampling, from the second draft on."""
    if rule is not Rule.RATIO:
        return verify(rule, p, proposal, uniform)
    joint, last = 1.0, len(proposal.tokens)
    for slot, draft in enumerate(proposal.tokens):
        here = p(slot)
        q = theirs(proposal.q[slot], draft, len(here))
        joint *= here[draft] / q[draft]
        if not uniform(Purpose.ACCEPT, slot) < joint:
            return Verdict(slot, draw(residual(here, q), uniform(Purpose.RESIDUAL, slot)))
    return Verdict(last, draw(p(last), uniform(Purpose.BONUS, last)))


@verifying
def f04b(seat: Seat, rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
    """The residual is taken from p before top-k, top-p and min-p: shows with a filter, on rejection, as tokens that the
    filter had removed."""
    if rule is not Rule.RATIO:
        return verify(rule, p, proposal, uniform)
    wide = Sampling(temperature=seat.row.request.sampling.temperature)
    return ratio(p, proposal, uniform, lambda slot, q: residual(seat.law(slot, wide), q), p)


@swap("verify", transaction)
def f04c(rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
    """The residual is taken over the ids of the compact q, all that the kernel has at hand: shows on rejection
    where p has mass outside of a selector's candidates."""
    if rule is not Rule.RATIO:
        return verify(rule, p, proposal, uniform)

    def correct(slot: int, q: Numbers) -> Numbers:
        here = p(slot)
        inside = residual(np.where(q > 0, here, 0.0), q)
        return inside / inside.sum() if inside.sum() > 0 else here

    return ratio(p, proposal, uniform, correct, p)


@verifying
def f05a(seat: Seat, rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
    """The bonus token behind accepted drafts is drawn at temperature one: shows at full acceptance and at any other
    temperature."""
    if rule is not Rule.RATIO or not proposal.tokens:
        return verify(rule, p, proposal, uniform)
    warm = replace(seat.row.request.sampling, temperature=1.0)
    return ratio(p, proposal, uniform, lambda slot, q: residual(p(slot), q), lambda slot: seat.law(slot, warm))


ROWS: tuple[Pair, ...] = (
    (f01a, "K01", *DENSE),
    (f01b, "K01", *WINDOW),
    (f01c, "K01", *HYBRID),
    (f02a, "K02", *DENSE),
    (f02b, "K02", *HYBRID),
    (f02c, "K02", *DENSE),
    (f03a, "K03", *DENSE),
    (f03b, "K03", *HYBRID),
    (f03c, "K03", *DENSE),
    (f04a, "K04", *DENSE),
    (f04b, "K04", *WINDOW),
    (f04c, "K04", *DENSE),
    (f05a, "K05", *DENSE),
)
