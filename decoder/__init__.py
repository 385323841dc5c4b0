"""The optimised decoder: paged, batched and speculative, and its output depends on neither of the three."""

from .build import make
from .engine import Engine

__all__ = ["Engine", "make"]
