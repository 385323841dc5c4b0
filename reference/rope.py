"""Rotary position embedding in the rotate-half layout, over all or the leading part of a head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rope:
    """Cosines and sines [T, rotary_dim / 2] of T positions, always float64."""

    cos: Tensor
    sin: Tensor


def rope(positions: Sequence[int], rotary_dim: int, theta: float, device: torch.device | str = "cpu") -> Rope:
    """Angles position * theta^(-2i / rotary_dim) for i < rotary_dim / 2, of absolute positions counted from 0."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    angles = torch.tensor(positions, dtype=torch.float64)[:, None] * theta**-exponents
    return Rope(angles.cos().to(device), angles.sin().to(device))


def rotate(x: Tensor, turn: Rope) -> Tensor:
    """Turn the leading rotary dimensions of x [T, heads, head_dim]; dimension i is paired with i + rotary_dim / 2."""
    half = turn.cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = turn.cos[:, None].to(x.dtype), turn.sin[:, None].to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)
