"""Requests: how those of an epoch are drawn, and which of them are looked at more closely."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from specqual.conformance.generators import CHUNK, PAGE, piece
from specqual.contract import Request, Sampling

from .plan import Asked, Plan, Room

SHORT = (1, 2, 3, 5, 8, 9, 12, PAGE - 1, PAGE, PAGE + 1)
GREEDY = Sampling()
WARM = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.7),
    Sampling(temperature=1.3, top_k=12),
    Sampling(temperature=1.0, top_p=0.9),
    Sampling(temperature=0.9, min_p=0.05),
)
JUDGED, ALONE, LOOKS = 0.25, 0.06, 0.1  # of requests, requests and ticks


def ids(chance: Random, room: Room, length: int) -> tuple[int, ...]:
    """A prompt of so many tokens."""
    return piece(room.text, room.usable, range(room.limits.vocab_size), chance, length)


def asked(chance: Random, room: Room, length: int, budget: int, sampling: Sampling = GREEDY, n: int = 1) -> Request:
    """A request within the context; what the decoder does not honour is left out."""
    if not {"temperature", "seed"} <= room.honoured and not sampling.greedy:
        sampling = GREEDY
    names = {"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"}
    sampling = replace(sampling, **{name: getattr(GREEDY, name) for name in names - room.honoured})
    budget = max(1, min(budget, room.limits.max_context - 2))
    length = max(1, min(length, room.limits.max_context - 1 - budget))
    return Request(
        prompt=ids(chance, room, length),
        max_tokens=budget,
        sampling=sampling,
        seed=0 if sampling.greedy else chance.randrange(2**63),
        n=n if "n" in room.honoured else 1,
        ignore_eos="ignore_eos" in room.honoured and chance.random() < 0.8,
    )


def planned(chance: Random, asked: Iterable[Asked], rates: tuple[float, float] = (JUDGED, ALONE), **more: Any) -> Plan:
    """A plan with its samples drawn: who is judged, who is served again, alone, and when states are looked at."""
    every = tuple(asked)

    def some(rate: float, count: int) -> frozenset[int]:
        return frozenset(chance.sample(range(count), min(count, max(rate > 0, round(rate * count)))))

    return Plan(every, judged=some(rates[0], len(every)), alone=some(rates[1], len(every)), **more)


def looks(chance: Random, ticks: int = 80, rate: float = LOOKS) -> frozenset[int]:
    """Ticks at which a state is looked at."""
    return frozenset(chance.sample(range(2, ticks), max(1, round(rate * ticks))))


def warm(chance: Random) -> Sampling:
    return chance.choice((GREEDY, GREEDY, *WARM[:3]))


def drawn(chance: Random, room: Room, count: int) -> list[Asked]:
    """Short requests of mixed shapes: some share their beginning, some have two samples, a few are asked for twice."""
    stems = [ids(chance, room, 2 * CHUNK) for _ in range(3)]
    found = list[Asked]()
    for place in range(count):
        long = chance.random() < 0.06
        length = chance.randint(CHUNK - 2, CHUNK + 20) if long else chance.choice(SHORT)
        request = asked(chance, room, length, chance.randint(1, 12), warm(chance), 2 if chance.random() < 0.08 else 1)
        if long or chance.random() < 0.2:
            stem = chance.choice(stems)[: len(request.prompt)]
            request = replace(request, prompt=(*stem[:-1], request.prompt[-1]))
        again = chance.randrange(place) if place > 8 and chance.random() < 0.04 else None
        found.append(Asked(request) if again is None else Asked(found[again].request, again=again))
    return found
