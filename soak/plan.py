"""Plans: everything that happens in an epoch, as data drawn beforehand from its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from specqual.contract import Limits, Request, Script

FEWEST = 4  # requests of an epoch


@dataclass(frozen=True, slots=True)
class Asked:
    """One submission. Ticks count from it: `cancel` behind so many, `preempt` behind so many, for so many ticks each.

    `follows` is the place of an earlier submission whose prompt and output this prompt goes on from; `again` that of
    one that it repeats. `refused`: it is well-formed and cannot be served.
    """

    request: Request
    cancel: int | None = None
    preempt: tuple[tuple[int, int], ...] = ()
    follows: int | None = None
    again: int | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Submissions in order, under way at most `live[tick % len(live)]` at a time, and all that is changed meanwhile.

    `schedule` holds sizes by tick, over and over with a period of `period` ticks; `looks` the ticks at which the state
    of a live sample is looked at; `alone` the places that are served again, alone; `judged` those whose tokens the
    reference judges. `bad` are requests with the field that they are to be refused for. The `script` is asked with a
    request's place as its id.
    """

    asked: tuple[Asked, ...]
    live: tuple[int, ...] = (16,)
    schedule: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    period: int = 1
    script: Script | None = None
    looks: frozenset[int] = frozenset()
    alone: frozenset[int] = frozenset()
    judged: frozenset[int] = frozenset()
    bad: tuple[tuple[str, Request], ...] = ()
    idle: int = 2  # ticks with nothing to do, at the end
    chunk: int | None = None  # tokens of a prompt in one pass, where that stays the same
    counted: bool = False  # served a second time, with the decoder's objects counted before and after


@dataclass(frozen=True, slots=True)
class Room:
    """What a decoder can do as it says: what plans are drawn from. `usable` ids may stand in a prompt; `scale` is what
    numbers of requests are multiplied by."""

    limits: Limits
    usable: tuple[int, ...]
    honoured: frozenset[str]
    rejects: bool  # that it is Scripted
    preempts: bool  # that it is Schedulable
    text: Any = None  # a tokenizer's, or None
    scale: float = 1.0

    def sized(self, count: int) -> int:
        """So many requests, to scale."""
        return max(FEWEST, round(count * self.scale))


Draw = Callable[[Random, Room], Plan]
"""Draws a plan from the random numbers of one epoch."""


def chance_of(seed: int, scenario: str, epoch: int, purpose: str = "plan") -> Random:
    """The random numbers of one purpose of one epoch: a hash of the name, so that no other epoch moves them."""
    return Random(f"{seed}/{scenario}/{epoch}/{purpose}")
