"""Verification of a chain of drafts: how many are accepted, and which token follows, whoever drafted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specqual.contract import CompactLaw, Proposal, Purpose, Rule

from .sampling import Row, certain, draw

SUM = 1e-5  # how far the probabilities of a q, which is often computed in float32, may miss one

Law = Callable[[int], Row]
"""The law p [V] behind the anchor (slot 0) or behind so many drafts; asked for in order, and only as far as needed."""

Uniform = Callable[[Purpose, int], float]
"""The number of a purpose and a slot; slot 0 is the first undecided position."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The drafts that were accepted, counted, and the correction or bonus token behind them."""

    accepted: int
    token: int


def verify(rule: Rule, p: Law, proposal: Proposal, uniform: Uniform) -> Verdict:
    """Judge a proposal by the ratio, one-hot or sampler-match rule; without drafts, the bonus token is all there is."""
    drafts = proposal.tokens
    if rule in (Rule.NONE, Rule.SAMPLER_MATCH):
        return matched(lambda slot: draw(p(slot), uniform(Purpose.BONUS, slot)), drafts)
    for slot, draft in enumerate(drafts):
        here, q = p(slot), proposal.q[slot]
        theirs = dense(q, len(here)) if q is not None and rule is Rule.RATIO else certain(draft, len(here))
        if not uniform(Purpose.ACCEPT, slot) * theirs[draft] < here[draft]:  # NaN rejects
            left = np.maximum(here - theirs, 0.0)
            mass = left.sum()
            return Verdict(slot, draw(left / mass if mass > 0 else here, uniform(Purpose.RESIDUAL, slot)))
    return Verdict(len(drafts), draw(p(len(drafts)), uniform(Purpose.BONUS, len(drafts))))


def matched(choose: Callable[[int], int], drafts: Sequence[int]) -> Verdict:
    """Accept drafts as long as they are what would be chosen in their slots anyway."""
    for slot, draft in enumerate(drafts):
        token = choose(slot)
        if token != draft:
            return Verdict(slot, token)
    return Verdict(len(drafts), choose(len(drafts)))


def dense(q: CompactLaw, size: int) -> Row:
    """A compact law as a row [size]."""
    row = np.zeros(size)
    row[list(q.ids)] = q.probabilities
    return row


def legal(proposal: Proposal, vocab_size: int, most: int) -> bool:
    """Whether a proposal can be verified: at most `most` known ids, each possible under a law that is one."""
    return len(proposal.tokens) == len(proposal.q) <= most and all(
        _token(token, vocab_size) and (q is None or _law(q, token, vocab_size))
        for token, q in zip(proposal.tokens, proposal.q, strict=True)
    )


def _token(token: object, vocab_size: int) -> bool:
    return isinstance(token, int | np.integer) and not isinstance(token, bool) and 0 <= int(token) < vocab_size


def _law(q: CompactLaw, token: int, vocab_size: int) -> bool:
    masses = dict(zip(q.ids, q.probabilities, strict=False))
    return (
        len(masses) == len(q.ids) == len(q.probabilities)
        and all(_token(known, vocab_size) for known in masses)
        and all(mass >= 0 for mass in masses.values())  # NaN is not
        and abs(sum(masses.values()) - 1) <= SUM
        and masses.get(token, 0.0) > 0
    )
