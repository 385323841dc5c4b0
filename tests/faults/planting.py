"""How a fault is planted: one function of the reference decoder is replaced while that decoder runs, and only then."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from specqual.contract import Claims, Event, Make, Request, Scored, Setup, State
from specqual.reference import ReferenceDecoder, make

Place = tuple[Any, str]
"""A module or class, and the name that is looked up in it."""


@contextmanager
def swapped(swaps: Mapping[Place, Any]) -> Iterator[None]:
    """Put other values under these names for the body; everything outside sees the sound ones."""
    sound = {(owner, name): vars(owner)[name] for owner, name in swaps}
    try:
        for (owner, name), value in swaps.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in sound.items():
            setattr(owner, name, value)


class Faulty(ReferenceDecoder):
    """The reference decoder with some names swapped during its own calls; its claims stay those of the sound one."""

    def __init__(self, setup: Setup, swaps: Mapping[Place, Any]) -> None:
        self._swaps = swaps
        with swapped(swaps):
            sound = make(setup)
        super().__init__(sound._target, sound._drafter, sound.claims, sound._text)

    def submit(self, request: Request) -> int:
        with swapped(self._swaps):
            return super().submit(request)

    def step(self) -> list[Event]:
        with swapped(self._swaps):
            return super().step()

    def cancel(self, request_id: int) -> None:
        with swapped(self._swaps):
            super().cancel(request_id)

    def score(self, prompt: Sequence[int], output: Sequence[int]) -> Scored:
        with swapped(self._swaps):
            return super().score(prompt, output)

    def inspect(self, request_id: int, sample: int = 0) -> State:
        with swapped(self._swaps):
            return super().inspect(request_id, sample)


def replacing(name: str, *owners: Any) -> Callable[[Callable[..., Any]], Make]:
    """Turn a function into the factory of a decoder that has it in the place of the sound function of this name.

    The function's docstring, what goes wrong and when it shows, becomes the factory's.
    """

    def decorate(fault: Callable[..., Any]) -> Make:
        def plant(setup: Setup) -> Faulty:
            return Faulty(setup, {(owner, name): fault for owner in owners})

        plant.__name__, plant.__doc__, plant.__module__ = fault.__name__, fault.__doc__, fault.__module__
        return plant

    return decorate


class BlackBox:
    """Any decoder with nothing but the base protocol to be seen."""

    def __init__(self, inner: ReferenceDecoder) -> None:
        self._inner = inner

    @property
    def claims(self) -> Claims:
        return self._inner.claims

    def submit(self, request: Request) -> int:
        return self._inner.submit(request)

    def step(self) -> list[Event]:
        return self._inner.step()

    def cancel(self, request_id: int) -> None:
        self._inner.cancel(request_id)

    def close(self) -> None:
        self._inner.close()


def black_box(factory: Make) -> Make:
    """The same decoder at level 1."""
    return lambda setup: BlackBox(factory(setup))
