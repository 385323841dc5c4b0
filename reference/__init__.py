"""The slow exact decoder: an executable specification in float64, with laws in Fractions beside it."""

from .build import make
from .decoder import ReferenceDecoder
from .target import load_target

__all__ = ["ReferenceDecoder", "load_target", "make"]
