"""Verification of one chain of drafts against the target's laws: what is accepted, and which token follows.

Greedy needs no rule of its own: its laws are one-hot, and every rule accepts exactly the drafts that they agree with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from specqual.contract import CompactLaw, Proposal, Purpose, Rule

from .sampling import Law, draw, point

# A law of a proposal may miss one by this much: it has usually been computed in float32.
TOLERANCE = 1e-5

Uniform = Callable[[Purpose, int], float | Fraction]
"""A number in [0, 1) by purpose and slot; slot 0 is the round's first undecided position."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many drafts of a round were accepted, and the correction or bonus token behind them."""

    accepted: int
    token: int


def residual(p: Law, q: Law) -> Law:
    """The law [V] of a correction: max(p - q, 0) renormalised, or p itself where that has no mass."""
    rest = np.maximum(p - q, 0)
    mass = rest.sum()
    return rest / mass if mass > 0 else p


def judged(rule: Rule, q: Law | None, draft: int, p: Law) -> Law:
    """The law [V] that a draft is held to have come from: its q under the ratio rule, else certainty."""
    return q if rule is Rule.RATIO and q is not None else point(draft, p)


def verify(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Sequence[Law | None], uniform: Uniform) -> Verdict:
    """Judge K drafts, `p` holding the K + 1 laws [V] of the target behind the anchor and behind each draft.

    Asks `uniform` only for the numbers it needs, in order of slots. Raises ValueError for a rule without a chain form.
    """
    last = len(drafts)
    if rule in (Rule.NONE, Rule.SAMPLER_MATCH):
        slot = 0
        while (token := draw(p[slot], uniform(Purpose.BONUS, slot))) == (drafts[slot] if slot < last else None):
            slot += 1
        return Verdict(slot, token)
    if rule not in (Rule.RATIO, Rule.ONE_HOT):
        raise ValueError(f"rule: {rule} is not a rule of this verification")
    for slot, draft in enumerate(drafts):
        law = judged(rule, q[slot], draft, p[slot])
        if not uniform(Purpose.ACCEPT, slot) * law[draft] < p[slot][draft]:  # strict; NaN rejects
            return Verdict(slot, draw(residual(p[slot], law), uniform(Purpose.RESIDUAL, slot)))
    return Verdict(last, draw(p[last], uniform(Purpose.BONUS, last)))


def dense(law: CompactLaw | None, like: Law) -> Law | None:
    """A compact law as an array [V] in the size and number type of another; None stays None."""
    if law is None:
        return None
    q = like * 0
    q[list(law.ids)] = law.probabilities
    return q


def lawful(proposal: Proposal, vocab_size: int, longest: int) -> bool:
    """Whether a proposal may be verified at all: known ids, at most `longest`, each drawn from its own true law."""
    tokens, laws = proposal.tokens, proposal.q
    return (
        len(tokens) == len(laws)
        and len(tokens) <= longest
        and (not tokens or _ids(np.asarray(tokens), vocab_size))
        and all(law is None or _law(law, token, vocab_size) for token, law in zip(tokens, laws, strict=True))
    )


def _ids(ids: Law, vocab_size: int) -> bool:
    return ids.dtype.kind == "i" and bool((ids >= 0).all() and (ids < vocab_size).all())


def _law(law: CompactLaw, token: int, vocab_size: int) -> bool:
    ids, masses = np.asarray(law.ids), np.asarray(law.probabilities, dtype=np.float64)
    return bool(
        ids.shape == masses.shape
        and _ids(ids, vocab_size)
        and len(np.unique(ids)) == len(ids)
        and (masses >= 0).all()  # false for NaN
        and abs(masses.sum() - 1) <= TOLERANCE
        and masses[ids == token].sum() > 0
    )
