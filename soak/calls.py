"""Calls into a decoder: what it raises is told from mistakes of our own."""

from collections.abc import Callable
from typing import Any, TypeVar

from specqual.conformance.drive import DecoderError, deadline

T = TypeVar("T")
LONGEST = 900.0  # seconds that a call may take before the decoder is taken to hang, however busy the machine


def called(call: Callable[..., T], *given: Any, known: tuple[type[Exception], ...] = (), **named: Any) -> T:
    """What a call into a decoder returns; DecoderError where it raises anything that its caller does not know, or does
    not return."""
    try:
        with deadline(LONGEST):
            return call(*given, **named)
    except (DecoderError, *known):
        raise
    except Exception as error:
        name = getattr(call, "__name__", "a call")
        raise DecoderError(f"{name} raised {type(error).__name__}: {error}") from error
