"""Row-wise kernels of one tile: linear modules, root-mean-square norms, gated MLPs and rotations."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear as affine
from torch.nn.functional import silu


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Where sums, norms, softmax and the recurrence happen: the dtype itself, but at least float32."""
    return torch.promote_types(dtype, torch.float32)


def wide(x: Tensor) -> Tensor:
    return x.to(wide_dtype(x.dtype))


@dataclass(frozen=True, slots=True)
class Linear:
    """A decoded linear module: weight [out, in] and bias [out], both wide, so that a product is rounded once."""

    weight: Tensor
    bias: Tensor | None = None


def linear(x: Tensor, module: Linear) -> Tensor:
    """Apply a linear module to one tile [16, in]: [16, out] in x's own dtype."""
    return affine(x.to(module.weight.dtype), module.weight, module.bias).to(x.dtype)


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Normalise the last axis of x [16, ..., H] by its root mean square and multiply by gain [H]."""
    exact = wide(x)
    return (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps) * gain).to(x.dtype)


def mlp(x: Tensor, linears: Mapping[str, Linear], name: str) -> Tensor:
    """The gated MLP of one tile [16, H]: down(silu(gate x) * up x)."""
    gate = silu(linear(x, linears[f"{name}.gate_proj"]))
    return linear(gate * linear(x, linears[f"{name}.up_proj"]), linears[f"{name}.down_proj"])


@dataclass(frozen=True, slots=True)
class Turns:
    """Cosines and sines [positions, rotary_dim / 2] of every position, made once, so that a position has one value."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, positions: int, rotary_dim: int, theta: float, dtype: torch.dtype) -> "Turns":
        exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
        angles = torch.arange(positions, dtype=torch.float64)[:, None] * theta**-exponents
        return cls(angles.cos().to(dtype), angles.sin().to(dtype))

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [R, rotary_dim / 2] of positions [R]."""
        return self.cos[positions], self.sin[positions]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the leading dimensions of x [R, heads, d] in rotate-half layout; dimension i is paired with i + half."""
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)
