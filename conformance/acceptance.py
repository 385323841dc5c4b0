"""Acceptance in the trace beside its closed form, draft by draft."""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from specqual.contract import CompactLaw, Request, Round, Rule
from specqual.reference.sampling import Law

from .drive import Answer

Target = Callable[[Request, Sequence[int]], Law]
"""The law p [V] of the token behind an output."""


def chance(rule: Rule, p: Law, q: CompactLaw | None, draft: int) -> float:
    """How likely a draft is to be accepted, given everything before it.

    Ratio: Σ min(p, q), before the draft is drawn. A draft that counts as certain, and one that must meet the target's
    own draw: p(draft), which is p(argmax q) for a greedy drafter, and Σ p q on average for one that draws from q.
    """
    if rule is Rule.RATIO and q is not None:
        return float(np.minimum(p[list(q.ids)], q.probabilities).sum())
    return float(p[draft])


def judged(rule: Rule, target: Target, answer: Answer) -> list[tuple[int, bool, float]]:
    """Slot, outcome and chance of every draft that verification came to before the end of its sample."""
    found = list[tuple[int, bool, float]]()
    for _, rounds in groupby(answer.rounds or (), key=lambda r: r.sample):
        output: tuple[int, ...] = ()
        for r in rounds:
            found += [(slot, slot < r.accepted, _chance(rule, target, answer, output, r, slot)) for slot in reached(r)]
            output += r.committed
    return found


def reached(r: Round) -> range:
    """The slots of a round that were judged: up to the first rejection, and none behind the end of the sample."""
    return range(min(len(r.proposals), r.accepted + 1, len(r.committed)))


def _chance(rule: Rule, target: Target, answer: Answer, output: tuple[int, ...], r: Round, slot: int) -> float:
    p = target(answer.request, (*output, *r.proposals[:slot]))
    return chance(rule, p, r.q[slot], r.proposals[slot])
