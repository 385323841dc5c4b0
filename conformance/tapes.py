"""A tape that looks for trouble: its numbers lie at the edge of every decision."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from specqual.contract import Key, Proposal, Purpose, Rule
from specqual.reference.sampling import Law
from specqual.reference.verify import dense, judged, residual

BELOW_ONE = 1.0 - 2.0**-53  # the largest number a tape may give


def interval(law: Law, token: int) -> tuple[float, float]:
    """The numbers [low, high) that draw this token by inverse CDF over ascending ids; empty where it has no mass."""
    upper = np.cumsum(law)
    high = 1.0 if not law[token + 1 :].any() else float(upper[token])
    return (float(upper[token - 1]) if token else 0.0), (high if law[token] else float(upper[token] - law[token]))


@dataclass
class Edges:
    """A tape whose numbers lie just inside and just outside of the edges that decide.

    `laws(position)` is the law p [V] of that position under the drafts so far; a script tells `offer` what it drafts.
    `reach` is the distance to the edge, in probability.
    """

    rule: Rule
    chance: Random
    reach: float
    given: dict[Key, float] = field(default_factory=dict)
    _drafts: dict[int, tuple[Law, Law | None, int]] = field(default_factory=dict)

    def offer(self, first: int, proposal: Proposal, laws: Sequence[Law]) -> None:
        """Drafts for the positions from `first` on, with the K + 1 laws [V] there."""
        self._drafts.clear()
        for slot, law in enumerate(laws):
            draft = proposal.tokens[slot] if slot < len(proposal.tokens) else -1
            q = dense(proposal.q[slot], law) if draft >= 0 else None
            self._drafts[first + slot] = (law, q, draft)

    def uniform(self, key: Key) -> float:
        if key not in self.given:
            self.given[key] = min(max(self._edge(key), 0.0), BELOW_ONE)
        return self.given[key]

    def _edge(self, key: Key) -> float:
        side = self.chance.choice((-1, 1)) * self.reach
        if key.position not in self._drafts:
            return self.chance.random()
        p, q, draft = self._drafts[key.position]
        if draft >= 0 and key.purpose is Purpose.ACCEPT:
            law = judged(self.rule, q, draft, p)
            return float(p[draft] / law[draft]) + side if law[draft] else self.chance.random()
        if draft >= 0 and key.purpose is Purpose.RESIDUAL:
            p = residual(p, judged(self.rule, q, draft, p))
        return float(self.chance.choice(np.cumsum(p)[np.flatnonzero(p)].tolist())) + side
