"""Kinds of evidence, one file each: what a case holds, and the pure function from cases to a verdict."""

from typing import Any

Case = dict[str, Any]
"""What one case of evidence holds, as plain JSON; its kind says which keys."""
