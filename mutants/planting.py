"""How a fault is planted: names of a decoder are swapped while that decoder runs, and only then."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import wraps
from inspect import getmembers, isfunction
from typing import Any

from specqual.conformance.veil import BlackBox
from specqual.contract import Decoder, Kernels, Make, Setup
from specqual.reference import make

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


def planted(setup: Setup, swaps: Mapping[Place, Any], sound: Make = make) -> Any:
    """The decoder that `sound` makes, of whatever class, with some names swapped while it is made and during its calls.

    Every public method is such a call; its claims and its private attributes stay those of the sound one.
    """
    with swapped(swaps):
        decoder = sound(setup)
    kind = type(decoder)

    def disturbed(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            with swapped(swaps):
                found = getattr(kind, method.__name__)(*arguments, **named)  # which may be swapped itself
            return disturbed_kernels(found, swaps) if isinstance(found, Kernels) else found

        return call

    calls = {name: disturbed(method) for name, method in getmembers(kind, isfunction) if not name.startswith("_")}
    decoder.__class__ = type(f"Faulty{kind.__name__}", (kind,), calls)  # type: ignore[assignment]
    return decoder


def disturbed_kernels(kernels: Kernels, swaps: Mapping[Place, Any]) -> Kernels:
    """The same kernels with these names swapped in each call."""

    def disturbed(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with swapped(swaps):
                return kernel(*arguments)

        return call

    found = {field.name: getattr(kernels, field.name) for field in fields(kernels)}
    changed = {name: disturbed(kernel) for name, kernel in found.items() if callable(kernel)}
    back_ends = {name: disturbed(kernel) for name, kernel in kernels.attention.items()}
    return replace(kernels, attention=back_ends, **changed)


def replacing(name: str, *owners: Any, sound: Make = make) -> Callable[[Callable[..., Any]], Make]:
    """Turn a function, method or class into the factory of a decoder that has it under this name in these modules or
    classes, and is in all else what `sound` makes.

    The docstring, what goes wrong and when it shows, becomes the factory's.
    """

    def decorate(fault: Callable[..., Any]) -> Make:
        def plant(setup: Setup) -> Decoder:
            found: Decoder = planted(setup, {(owner, name): fault for owner in owners}, sound)
            return found

        plant.__name__, plant.__doc__, plant.__module__ = fault.__name__, fault.__doc__, fault.__module__
        return plant

    return decorate


def black_box(factory: Make) -> Make:
    """The same decoder at level 1."""

    def make(setup: Setup) -> Decoder:
        return BlackBox(factory(setup))

    make.__name__, make.__doc__, make.__module__ = f"{factory.__name__}_black_box", factory.__doc__, factory.__module__
    return make
