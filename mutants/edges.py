"""Faults at the edges of numbers and between rounds and samples: too small or too rare for any sample to show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specqual.contract import CompactLaw, Decoder, Key, Purpose, Rule, Sampling, Setup, Tape, Tokens
from specqual.reference import choice, decoder, transaction, verify
from specqual.reference.choice import Array
from specqual.reference.sampling import Law, draw
from specqual.reference.transaction import Plan, Sample
from specqual.reference.verify import Uniform, Verdict

from .mutant import planted_in
from .pairs import DFLASH2
from .planting import planted, replacing

sound_verify, sound_residual, sound_judged = verify.verify, verify.residual, verify.judged
sound_advance, sound_pick = transaction.advance, choice.pick

Borrow = Callable[[Key, float], float]


@dataclass(frozen=True, slots=True)
class Borrowing:
    """A tape whose numbers are all read, and some then left for others."""

    tape: Tape
    borrow: Borrow

    def uniform(self, key: Key) -> float:
        return self.borrow(key, self.tape.uniform(key))


def borrowing(setup: Setup, borrow: Callable[[int], Borrow]) -> Decoder:
    """The reference decoder with borrowed numbers; `borrow` is told the id of the request."""

    def advance(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
        return sound_advance(sample, replace(plan, tape=Borrowing(plan.tape, borrow(sample.request_id))))

    found: Decoder = planted(setup, {(decoder, "advance"): advance})
    return found


def m03k(setup: Setup) -> Decoder:
    """A second sample's correction takes the number of the first sample's at the same position; its own is read and
    thrown away. Each sample is right by itself; shows only where both are corrected in one place."""
    held: dict[tuple[int, int], float] = {}

    def borrow(request_id: int) -> Borrow:
        def taken(key: Key, u: float) -> float:
            if key.purpose is not Purpose.RESIDUAL or key.sample > 1:
                return u
            place = (request_id, key.position)
            if key.sample == 0:
                held[place] = u
            return held.get(place, u)

        return taken

    return borrowing(setup, borrow)


def m03i(setup: Setup) -> Decoder:
    """Every round judges its first draft by the number that judged the first one ever; its own is read and thrown
    away. Shows from the second drafted round on."""
    held: dict[tuple[int, int], float] = {}

    def borrow(request_id: int) -> Borrow:
        def taken(key: Key, u: float) -> float:
            if key.purpose is not Purpose.ACCEPT or key.position != key.round_start:
                return u
            return held.setdefault((request_id, key.sample), u)

        return taken

    return borrowing(setup, borrow)


def m03j(setup: Setup) -> Decoder:
    """From position 20 on, a second sample's bonus takes the number of the last acceptance before it; its own is read
    and thrown away. Shows in long outputs of several samples only."""
    held: dict[int, float] = {}

    def borrow(request_id: int) -> Borrow:
        def taken(key: Key, u: float) -> float:
            if key.purpose is Purpose.ACCEPT and key.sample == 1:
                held[request_id] = u
            if key.purpose is Purpose.BONUS and key.sample == 1 and key.position >= 20:
                return held.get(request_id, u)
            return u

        return taken

    return borrowing(setup, borrow)


@replacing("pick", choice)
def m02g(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """The number that draws a draft is rounded to 20 bits. Its edges move by less than a millionth, which no single
    decision shows."""
    return sound_pick(ids, scores, sampling, round(u * 2**20) / 2**20)


@replacing("verify", transaction)
def m04i(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Sequence[Law | None], uniform: Uniform) -> Verdict:
    """A draft is accepted where u q equals p, too. Shows in impossible drafts, and there for the number 0 alone."""
    if rule not in (Rule.RATIO, Rule.ONE_HOT):
        return sound_verify(rule, p, drafts, q, uniform)
    for slot, draft in enumerate(drafts):
        law = sound_judged(rule, q[slot], draft, p[slot])
        if uniform(Purpose.ACCEPT, slot) * law[draft] > p[slot][draft]:
            return Verdict(slot, draw(sound_residual(p[slot], law), uniform(Purpose.RESIDUAL, slot)))
    return Verdict(len(drafts), draw(p[-1], uniform(Purpose.BONUS, len(drafts))))


@replacing("draw", verify)
def m04j(p: Law, u: float) -> int:
    """The lowest id with u <= P(id <= v) is drawn. Shows where the first ids are impossible, and there for 0 alone."""
    return int(np.searchsorted(np.cumsum(p), u, side="left"))


@replacing("draw", verify)
def m04k(p: Law, u: float) -> int:
    """The sums fall short of one by a billionth, and the last id of the vocabulary gets what is missing."""
    return min(int(np.searchsorted(np.cumsum(p) * (1 - 1e-9), u, side="right")), len(p) - 1)


PLANTED = planted_in(
    "reference",
    ("LAW-4", DFLASH2, (m03j,)),
    ("LAW-5", DFLASH2, (m02g, m03k, m03i, m04i, m04j, m04k)),
)
