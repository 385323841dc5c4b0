"""A qualification suite for speculative decoding, with a slow exact reference decoder inside.

`specqual.check(decoder, clauses=…)` decides clauses inside an engine's own tests (`specqual.conformance.library`).
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`check` is looked up when it is asked for: it needs floors that this package stands below."""
    if name == "check":
        return import_module(f"{__name__}.conformance.library").check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
