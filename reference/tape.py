"""Tapes to record and to replay random numbers, and the ledger that finds a number used twice."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specqual.contract import Key, Purpose, Round, Rule, Tape


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tape that holds exactly these numbers; any other key is a KeyError."""

    numbers: Mapping[Key, float]

    def uniform(self, key: Key) -> float:
        return self.numbers[key]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A tape that passes another one on and writes down, in order, what was asked and what came back."""

    source: Tape
    asked: list[tuple[Key, float]] = field(default_factory=list)

    def uniform(self, key: Key) -> float:
        u = self.source.uniform(key)
        self.asked.append((key, u))
        return u

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key for key, _ in self.asked)


def decisions(rule: Rule, round: Round, seed: int, *, drafted: bool = True) -> tuple[Key, ...]:
    """The numbers that one sampled round must have used, in the order of its decisions.

    `drafted` says that the decoder itself drew the drafts that come with a law. Keys name decisions one to one, so a
    number decided two things if and only if its key stands twice in the ledger of a request, or where no decision is.
    """
    first, count, accepted = round.start + 1, len(round.proposals), round.accepted

    def key(purpose: Purpose, slot: int, start: int = first) -> Key:
        return Key(seed, round.sample, start, first + slot, purpose)

    used = [key(Purpose.DRAFT, slot) for slot in range(count) if drafted and round.q[slot] is not None]
    if rule in (Rule.NONE, Rule.SAMPLER_MATCH):  # the target's own draws do not know how rounds were cut
        return (*used, *(key(Purpose.BONUS, slot, first + slot) for slot in range(accepted + 1)))
    used += [key(Purpose.ACCEPT, slot) for slot in range(min(accepted + 1, count))]
    return (*used, key(Purpose.RESIDUAL if accepted < count else Purpose.BONUS, accepted))


def reused(*ledgers: Iterable[Key]) -> tuple[Key, ...]:
    """Keys that were asked for more than once, over all rounds, rows and requests given."""
    return tuple(key for key, times in Counter(key for ledger in ledgers for key in ledger).items() if times > 1)


def unexplained(asked: Iterable[Key], rounds: Iterable[tuple[Key, ...]]) -> tuple[Key, ...]:
    """Keys asked without a decision that they belong to, or decisions made without asking."""
    due = Counter(key for keys in rounds for key in keys)
    used = Counter(asked)
    return tuple((used - due) + (due - used))
