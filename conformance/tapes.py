"""Tapes that look for trouble: one at the edge of every decision, one that visits every cell of all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np

from specqual.contract import CompactLaw, Key, Proposal, Purpose, Rule
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


@dataclass
class Cells:
    """Every path through all decisions: a tape and a source of drafts that count through cells like an odometer.

    `cuts(key)` are the edges in (0, 1) between which a decision cannot change; the middle of each cell stands for it.
    `weight` is the probability of the present path.
    """

    cuts: Callable[[Key], Sequence[Fraction]]
    weight: Fraction = Fraction(1)
    _digits: list[int] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _seen: dict[Key, float] = field(default_factory=dict)

    def choose(self, weights: Sequence[Fraction]) -> int:
        """The present path's choice among alternatives with these probabilities."""
        place = len(self._sizes)
        if place == len(self._digits):
            self._digits.append(0)
        self._sizes.append(len(weights))
        self.weight *= weights[self._digits[place]]
        return self._digits[place]

    def uniform(self, key: Key) -> float:
        if key not in self._seen:
            edges = [Fraction(0), *sorted(set(self.cuts(key))), Fraction(1)]
            cell = self.choose([high - low for low, high in pairwise(edges)])
            self._seen[key] = float((edges[cell] + edges[cell + 1]) / 2)
        return self._seen[key]

    def advance(self) -> bool:
        """Go to the next path; False when all have been visited."""
        del self._digits[len(self._sizes) :]
        while self._digits and self._digits[-1] + 1 == self._sizes[len(self._digits) - 1]:
            self._digits.pop()
        if self._digits:
            self._digits[-1] += 1
        self.weight = Fraction(1)
        self._sizes.clear()
        self._seen.clear()
        return bool(self._digits)

    def drafts(self, q: Callable[[Sequence[int]], Sequence[Fraction]], prefix: Sequence[int], count: int) -> Proposal:
        """Draw `count` drafts from the laws q behind a prefix."""
        tokens: list[int] = []
        laws: list[CompactLaw | None] = []
        for _ in range(count):
            law = q([*prefix, *tokens])
            ids = [token for token, mass in enumerate(law) if mass]
            token = ids[self.choose([law[i] for i in ids])]
            laws.append(CompactLaw(tuple(ids), tuple(float(law[i]) for i in ids)))
            tokens.append(token)
        return Proposal(tuple(tokens), tuple(laws))
