"""Random numbers as values: every number a decoder uses is named by a key."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Purpose(StrEnum):
    """What a random number decides."""

    DRAFT = "draft"
    ACCEPT = "accept"
    RESIDUAL = "residual"
    BONUS = "bonus"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The name of one uniform number.

    `position` is the absolute index of the token being decided; `round_start` the absolute index of the round's
    first undecided token. Under the sampler-match rule the target's own draw at a position must not depend on how
    rounds were cut, so there `round_start` equals `position` and the purpose is BONUS.
    """

    seed: int
    sample: int
    round_start: int
    position: int
    purpose: Purpose


@runtime_checkable
class Tape(Protocol):
    """A source of uniform numbers in [0, 1), a pure function of the key.

    A token is drawn by inverse CDF over ascending token ids: the lowest id v with u < P(id <= v).
    A draft d is accepted iff u * q(d) < p(d), strictly.
    """

    def uniform(self, key: Key) -> float:
        """The number in [0, 1) that belongs to a key, however often it is asked for."""
        ...
