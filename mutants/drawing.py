"""Faults of drawing: q is not the law that the draft was drawn from (K02), random numbers are used twice (K03)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from specqual.contract import CompactLaw, Decoder, Key, Proposal, Purpose, Rule, Sampling, Setup
from specqual.reference import choice, drafter, transaction, verify
from specqual.reference.choice import Array, Scored
from specqual.reference.sampling import Law

from .mutant import planted_in
from .pairs import DFLASH, DFLASH2, MARKOV
from .planting import planted, replacing

sound_pick, sound_walk, sound_verify = choice.pick, choice.walk, verify.verify


@replacing("pick", choice)
def m02a(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """The draft is drawn after top-k and top-p, q is taken before them. Silent without filters."""
    token, _ = sound_pick(ids, scores, sampling, u)
    return token, sound_pick(ids, scores, Sampling(temperature=sampling.temperature), u)[1]


@replacing("pick", choice)
def m02b(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """The draft is the best token, q the softmax."""
    return sound_pick(ids, scores, Sampling(), u)[0], sound_pick(ids, scores, sampling, u)[1]


@replacing("pick", choice)
def m02c(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """The draft is drawn at the request's temperature, q taken at T = 1. Silent at T = 1."""
    token, law = sound_pick(ids, scores, sampling, u)
    if sampling.greedy:
        return token, law
    return token, sound_pick(ids, scores, replace(sampling, temperature=1.0), u)[1]


@replacing("walk", drafter)
def m02d(anchor: int, length: int, scored: Scored, sampling: Sampling, uniform: Callable[[int], float]) -> Proposal:
    """q of the next slot is reported. Silent where neighbouring slots have equal laws."""
    sound = sound_walk(anchor, length, scored, sampling, uniform)
    return Proposal(sound.tokens, (*sound.q[1:], *sound.q[-1:]))


@replacing("pick", choice)
def m02e(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """The draft is drawn from scores rounded to quarters, q taken from the exact ones."""
    return sound_pick(ids, np.round(scores * 4) / 4, sampling, u)[0], sound_pick(ids, scores, sampling, u)[1]


@replacing("pick", choice)
def m02f(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """q's probabilities stand in the order of the drafter's own vocabulary, a permuted one, beside the target's ids."""
    token, law = sound_pick(ids, scores, sampling, u)
    if law is None:
        return token, law
    own = sorted(range(len(law.ids)), key=lambda place: 7 * law.ids[place] % 96)
    return token, CompactLaw(law.ids, tuple(law.probabilities[place] for place in own))


def reused(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    return Key(seed, sample, round_start, position, Purpose.DRAFT if purpose is Purpose.RESIDUAL else purpose)


@replacing("Key", transaction)
def m03a(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    """The number that drew a draft decides its correction, too. Silent in greedy mode and for certain drafts."""
    return reused(seed, sample, round_start, position, purpose)


@replacing("Key", transaction)
def m03b(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    """The bonus takes the number of the last draft. Every single token keeps its law, pairs do not."""
    if purpose is Purpose.BONUS and position > round_start:
        return Key(seed, sample, round_start, position - 1, Purpose.DRAFT)
    return Key(seed, sample, round_start, position, purpose)


@replacing("Key", transaction)
def m03c(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    """One number judges all drafts of a round. The first position is exact, later ones are accepted too often."""
    return Key(seed, sample, round_start, round_start if purpose is Purpose.ACCEPT else position, purpose)


@replacing("Key", transaction)
def m03d(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    """All samples of a request share their numbers. Each is right on its own, and all are the same."""
    return Key(seed, 0, round_start, position, purpose)


@replacing("Key", transaction)
def m03e(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    """The acceptance's number draws the correction, too: rejected means that it was large."""
    return Key(seed, sample, round_start, position, Purpose.ACCEPT if purpose is Purpose.RESIDUAL else purpose)


@replacing("verify", transaction)
def m03f(rule: Rule, p, drafts, q, uniform) -> verify.Verdict:
    """The correction's own number is read and thrown away; the draft's decides. The ledger of keys looks right."""

    def shared(purpose: Purpose, slot: int) -> float:
        u = uniform(purpose, slot)
        law = q[slot] if slot < len(q) else None
        if purpose is not Purpose.RESIDUAL or law is None:
            return u
        # A number from the middle of the draft's interval, which is what its own number is known to lie in.
        return float(np.cumsum(law)[drafts[slot]] - law[drafts[slot]] / 2)

    return sound_verify(rule, p, drafts, q, shared)


@replacing("Key", transaction)
def m03g(seed: int, sample: int, round_start: int, position: int, purpose: Purpose) -> Key:
    """Keys count from the start of the round, so every round draws the same numbers."""
    return Key(seed, sample, 0, position - round_start, purpose)


def race(law: Law, ids: Array, u: float) -> int:
    """The place [k] that wins: log-probabilities plus Gumbel numbers of the tokens `ids` [k]; u names the vector."""
    drawn = np.random.default_rng(int(u * 2**53)).random(int(ids.max()) + 1)[ids]
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.log(law) - np.log(-np.log(drawn))))


def raced(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """A draft drawn from its law by a race, in place of the inverse of its sums."""
    token, law = sound_pick(ids, scores, sampling, u)
    if law is None:
        return token, None
    drawn = np.array(law.ids)
    return int(drawn[race(np.array(law.probabilities), drawn, u)]), law


RACES = {(choice, "pick"): raced, (verify, "draw"): lambda law, u: race(law, np.arange(len(law)), u)}


def m03h(setup: Setup) -> Decoder:
    """Tokens are drawn by Gumbel races, and the vector that chose the draft decides the correction again (B11). Silent
    in greedy mode and for certain drafts; the weakest bias that was ever published."""
    found: Decoder = planted(setup, RACES | {(transaction, "Key"): reused})
    return found


PLANTED = planted_in(
    "reference",
    ("LAW-2", DFLASH, (m02a, m02e, m02f)),
    ("LAW-2", DFLASH2, (m02b, m02c, m03f)),
    ("LAW-2", MARKOV, (m02d,)),
    ("LAW-4", DFLASH2, (m03a,)),
    ("RNG-1", DFLASH2, (m03a, m03b, m03c, m03d, m03e, m03g)),
    ("RNG-3", DFLASH2, (m03d,)),
    ("RNG-1", DFLASH2, (m03h,)),
)
