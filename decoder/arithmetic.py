"""Row-wise kernels of one tile: linear modules, root-mean-square norms, gated MLPs and rotations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Where sums, norms, softmax and the recurrence happen: the dtype itself, but at least float32."""
    return torch.promote_types(dtype, torch.float32)


def wide(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)


@dataclass(frozen=True, slots=True)
class Linear:
    """A decoded linear module: weight [in, out] and bias [out], both wide, so that a product is rounded once.

    The weight lies input by input: a product of 16 rows reads it once, from front to back.
    """

    weight: Tensor
    bias: Tensor | None = None


def linear(x: Tensor, module: Linear) -> Tensor:
    """Apply a linear module to one tile [16, in]: [16, out] in x's own dtype."""
    exact = wide(x)
    if module.bias is None:
        return narrow(torch.mm(exact, module.weight), x.dtype)
    return narrow(torch.addmm(module.bias, exact, module.weight), x.dtype)


def fused(modules: Sequence[Linear]) -> Linear:
    """One module for several that read the same input: their outputs stand behind each other."""
    weight = torch.cat([module.weight for module in modules], dim=1)
    if all(module.bias is None for module in modules):
        return Linear(weight)
    parts = [m.weight.new_zeros(m.weight.shape[1]) if m.bias is None else m.bias for m in modules]
    return Linear(weight, torch.cat(parts))


def gain_of(weight: Tensor) -> Tensor:
    """The gain of a norm, ready to multiply a vector [..., H] of length one: that has a root mean square of H^-0.5."""
    return weight * math.sqrt(weight.shape[-1])


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Normalise the last axis of x [16, ..., H] by its root mean square and multiply by a weight, given as gain_of it
    [..., H]."""
    exact = wide(x)
    return narrow((exact * shrink(exact, x.shape[-1] * eps)).mul_(gain), x.dtype)


def shrink(x: Tensor, eps: float) -> Tensor:
    """What makes vectors x [..., H] of length one: [..., 1]; eps is added to the square of the length."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.square_().add_(eps).rsqrt_()


def mlp(x: Tensor, gate_up: Linear, down: Linear) -> Tensor:
    """The gated MLP of one tile [16, H]: down(silu(gate x) * up x)."""
    gate, up = linear(x, gate_up).chunk(2, dim=-1)
    return linear(silu(gate).mul_(up), down)


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

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [R, 1, rotary_dim / 2], in `dtype`, of positions [R]: one row for all heads."""
        return self.cos[positions, None].to(dtype), self.sin[positions, None].to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the leading dimensions of x [R, heads, d] in rotate-half layout; dimension i is paired with i + half."""
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = [(first * cos).sub_(second * sin), (second * cos).add_(first * sin)]
    return torch.cat([*turned, x[..., 2 * half :]] if 2 * half < x.shape[-1] else turned, dim=-1)
