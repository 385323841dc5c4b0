"""Trials: requests served by a decoder that is hit by a fault, and what became of it and of them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, TypeVar

from specqual.contract import Finished, Inspectable, Limits, Refused, Request, Sampling, Tokens

T = TypeVar("T")
TICKS = 2_000  # in which the requests of a trial must have ended

Outputs = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each request its samples' tokens."""


class Fate(StrEnum):
    """What became of a decoder that was hit, from best to worst."""

    MISSED = "the fault never struck"
    SURVIVED = "nothing was to be seen of the fault"
    WENT_ON = "it raised once, and served all requests to their ends all the same"
    RECOVERED = "it raised; with its requests cancelled it had everything free, and served them again as ever"
    KEPT = "it raised; all that was recorded was there, and the rest went in once there was room"
    ENDED = "it raised, and had to be made anew; the new one serves as ever"
    WRONG = "it said something else than the undisturbed one"


class Stuck(Exception):
    """Requests that do not end."""


@dataclass(slots=True)
class Strike:
    """Whether a fault has struck, and how often it might have."""

    chances: int = 0
    struck: bool = False


Affliction = Callable[[Any, int], AbstractContextManager[Strike]]
"""Puts a fault into a decoder for the body of a `with`: it strikes at its n-th chance, and for n = 0 never."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A fate, and the sentence that goes with it: what was raised, or what differed."""

    fate: Fate
    detail: str
    chances: int = 0


def workload(limits: Limits, honoured: frozenset[str], chance: Random) -> tuple[Request, ...]:
    """A few requests of all shapes that fit: shared beginnings, chunks and pages that are passed, samples, seeds."""
    usable = [token for token in range(limits.vocab_size) if token not in limits.eos_ids]
    base = tuple(chance.choice(usable) for _ in range(71))
    sampled = {"temperature", "seed"} <= honoured
    found = []
    for length, budget, warm, samples in ((3, 7, False, 1), (17, 3, True, 2), (66, 9, False, 1), (70, 4, True, 1)):
        length = max(1, min(length, limits.max_context - budget - 1))
        found.append(
            Request(
                prompt=base[:length],
                max_tokens=min(budget, limits.max_context - length),
                sampling=Sampling(temperature=0.9) if warm and sampled else Sampling(),
                seed=chance.randrange(2**32) if warm and sampled else 0,
                n=samples if "n" in honoured else 1,
                ignore_eos="ignore_eos" in honoured,
            )
        )
    return tuple(found)


class Batch:
    """Requests on their way through one decoder; `run` may raise, and may be called again."""

    def __init__(self, decoder: Any, requests: Sequence[Request]) -> None:
        self.decoder, self.requests = decoder, requests
        self.ids: list[int] = []
        self.heard: dict[int, list[list[int]]] = {}
        self.open = set[int]()

    def run(self) -> Outputs:
        """Submit what has not been submitted, and step until every request has ended; Stuck if one does not."""
        for request in self.requests[len(self.ids) :]:
            self.ids.append(self.decoder.submit(request))
            self.open.add(self.ids[-1])
            self.heard[self.ids[-1]] = [[] for _ in range(request.n)]
        for _ in range(TICKS):
            if not self.open:
                return tuple(tuple(map(tuple, self.heard[request_id])) for request_id in self.ids)
            for event in self.decoder.step():
                if isinstance(event, Finished | Refused):
                    self.open.discard(event.request_id)
                elif isinstance(event, Tokens) and event.request_id in self.heard:
                    self.heard[event.request_id][event.sample] += event.ids
        raise Stuck(f"{len(self.open)} of {len(self.ids)} requests did not end within {TICKS} ticks")

    def cancel(self) -> None:
        """End whatever has not ended; a request that the decoder no longer knows is one that has."""
        for request_id in sorted(self.open):
            try:
                self.decoder.cancel(request_id)
            except KeyError:
                self.open.discard(request_id)
        self.run()


def free(decoder: Any) -> dict[str, int]:
    """What is free; nothing where the decoder does not tell."""
    return dict(decoder.resources()) if isinstance(decoder, Inspectable) else {}


def tried(call: Callable[[], T]) -> T | Exception:
    """What a call returns or raises."""
    try:
        return call()
    except Exception as error:
        return error


def undisturbed(decoder: Any, requests: Sequence[Request], affliction: Affliction) -> Outputs:
    """What the requests say under a fault that never strikes."""
    with affliction(decoder, 0):
        return Batch(decoder, requests).run()


def trial(
    make: Callable[[], Any], requests: Sequence[Request], expected: Outputs, affliction: Affliction, place: int
) -> Trial:
    """Serve the requests on a new decoder under a fault, and see what becomes of it.

    A decoder that raises has said that something is wrong. It may go on, or be of use once its requests are cancelled,
    or be given up for a new one; only other tokens, or lost resources, without a word are wrong.
    """
    decoder = make()
    fresh, batch = free(decoder), Batch(decoder, requests)
    with affliction(decoder, place) as strike:
        found = tried(batch.run)
    if not isinstance(found, Exception):
        fate = Fate.SURVIVED if strike.struck else Fate.MISSED
        fate = fate if (found, free(decoder)) == (expected, fresh) else Fate.WRONG
        return Trial(fate, differing(found, expected) or unlike(decoder, fresh), strike.chances)
    raised = f"{type(found).__name__}: {found}"
    with affliction(decoder, 0):
        if tried(batch.run) == expected and free(decoder) == fresh:
            return Trial(Fate.WENT_ON, raised, strike.chances)
        tried(batch.cancel)
    if free(decoder) == fresh and tried(lambda: undisturbed(decoder, requests, affliction)) == expected:
        return Trial(Fate.RECOVERED, raised, strike.chances)
    left = unlike(decoder, fresh)
    tried(decoder.close)
    fate = Fate.ENDED if tried(lambda: undisturbed(make(), requests, affliction)) == expected else Fate.WRONG
    return Trial(fate, f"{raised}{'; ' + left if left else ''}", strike.chances)


def differing(found: Outputs, expected: Outputs) -> str:
    """Which request says something else; empty where none does."""
    off = [str(place) for place, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
    return f"other tokens in request {', '.join(off)} of the trial" if off else ""


def unlike(decoder: Any, fresh: Mapping[str, int]) -> str:
    """What is missing, or too much, of what was free; empty where nothing is."""
    now = free(decoder)
    return ", ".join(f"{now[kind]} of {count} {kind} free" for kind, count in fresh.items() if now[kind] != count)
