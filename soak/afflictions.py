"""Faults that strike a decoder at its n-th chance, each for the body of a `with`; with n = 0 they never do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from math import nan
from time import sleep
from typing import Any

from specqual.contract import CompactLaw, Event, Key, Proposal, ScriptContext, Scripted, Taped
from specqual.decoder.memory import Store

from .trial import Strike

SLOW = 0.02  # seconds that a slow consumer takes over each tick


class Injected(RuntimeError):
    """The fault that was put in, and no mistake of the decoder."""


class NoDrill(Exception):
    """Why a fault cannot be put into this decoder."""


def chance(strike: Strike, place: int) -> bool:
    """Count a chance, and say whether it is the one to strike at."""
    strike.chances += 1
    strike.struck |= strike.chances == place
    return strike.chances == place


@contextmanager
def nothing(decoder: Any, place: int) -> Iterator[Strike]:
    """The decoder is left as it was made."""
    yield Strike(struck=place == 1)


@contextmanager
def drafting(decoder: Any, place: int) -> Iterator[Strike]:
    """The drafter raises when it is asked for the n-th time, and is silent else."""
    strike = Strike()

    def script(context: ScriptContext) -> Proposal:
        if chance(strike, place):
            raise Injected(f"at draft {place}")
        return Proposal.certain(())

    with scripted(decoder, script):
        yield strike


@contextmanager
def nan_laws(decoder: Any, place: int) -> Iterator[Strike]:
    """The drafter's n-th law is not a number, for a token that exists; it is silent else."""
    strike = Strike()

    def script(context: ScriptContext) -> Proposal:
        if chance(strike, place):
            return Proposal((context.tokens[-1],), (CompactLaw((context.tokens[-1],), (nan,)),))
        return Proposal.certain(())

    with scripted(decoder, script):
        yield strike


@contextmanager
def scripted(decoder: Any, script: Callable[[ScriptContext], Proposal]) -> Iterator[None]:
    if not isinstance(decoder, Scripted):
        raise NoDrill("the decoder does not offer Scripted")
    decoder.script(script)
    try:
        yield
    finally:
        decoder.script(None)


class Hashed:
    """A tape whose numbers are hashes of their keys, and which raises when it is asked for the n-th."""

    def __init__(self, place: int) -> None:
        self.strike, self.place = Strike(), place

    def uniform(self, key: Key) -> float:
        if chance(self.strike, self.place):
            raise Injected(f"at random number {self.place}")
        return int.from_bytes(sha256(repr(key).encode()).digest()[:6], "big") / 2**48


@contextmanager
def drawing(decoder: Any, place: int) -> Iterator[Strike]:
    """The n-th random number cannot be had: a step raises in the midst of a verification."""
    if not isinstance(decoder, Taped):
        raise NoDrill("the decoder does not offer Taped")
    tape = Hashed(place)
    decoder.tape(tape)
    try:
        yield tape.strike
    finally:
        decoder.tape(None)


@contextmanager
def stepping(decoder: Any, place: int) -> Iterator[Strike]:
    """The n-th step does all that it has to, and raises before anybody hears of it."""
    strike, step = Strike(), decoder.step

    def raising() -> list[Event]:
        events: list[Event] = step()
        if chance(strike, place):
            raise Injected(f"behind step {place}")
        return events

    with instead(decoder, "step", raising):
        yield strike


@contextmanager
def consuming(decoder: Any, place: int) -> Iterator[Strike]:
    """Whoever steps takes his time over each tick: the events of one wait before there is another."""
    strike, step = Strike(struck=place == 1), decoder.step

    def slow() -> list[Event]:
        strike.chances += 1
        sleep(SLOW if place == 1 else 0.0)
        events: list[Event] = step()
        return events

    with instead(decoder, "step", slow):
        yield strike


@contextmanager
def allocating(decoder: Any, place: int) -> Iterator[Strike]:
    """The n-th page or slot that is taken from the pools cannot be had."""
    store = getattr(decoder, "_store", None)
    if not isinstance(store, Store):
        raise NoDrill("only the pools of the optimised decoder can be reached")
    strike, page, slot = Strike(), store.pages._take, store.slots.take

    def failing(take: Callable[[], Any]) -> Callable[[], Any]:
        def taken() -> Any:
            if chance(strike, place):
                raise MemoryError(f"allocation {place} fails")
            return take()

        return taken

    with instead(store.pages, "_take", failing(page)), instead(store.slots, "take", failing(slot)):
        yield strike


@contextmanager
def instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let one object, and no other of its class, have something else under a name."""
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
