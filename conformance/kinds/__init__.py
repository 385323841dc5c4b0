"""Kinds of evidence, one file each: what a case holds, and the pure function from cases to a verdict."""

from collections.abc import Sequence
from typing import Any

Case = dict[str, Any]
"""What one case of evidence holds, as plain JSON; its kind says which keys."""


def parting(expected: Sequence[int], actual: Sequence[int]) -> int | None:
    """The first place where two outputs hold different tokens, or None."""
    return next((i for i, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b), None)
