"""Linear modules on the device: every weight in the format that its file has, laid out once for its kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.errors import CheckpointError
from specqual.contract.kernels import Weight
from specqual.contract.quantisation import Format

from .linear import Held, hold, linear

PARTS = {
    Format.DENSE: ("weight",),
    Format.FP8: ("weight", "weight_scale"),
    Format.NVFP4: ("weight", "weight_scale", "weight_scale_2"),
    Format.NVFP4_PACKED: ("weight_packed", "weight_scale", "weight_global_scale"),
}
"""What a module is stored as, by suffix: its rows first."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A linear module as its file has it, by its name there: row o of every matrix belongs to output o."""

    name: str
    weight: Weight
    bias: Tensor | None

    @classmethod
    def read(cls, checkpoint: Checkpoint[Any], name: str) -> "Stored":
        kind = checkpoint.quantisation.format_of(name)
        bias = checkpoint.read(f"{name}.bias") if f"{name}.bias" in checkpoint.tensors else None
        return cls(name, Weight(kind, {suffix: checkpoint.read(f"{name}.{suffix}") for suffix in PARTS[kind]}), bias)

    @property
    def outputs(self) -> int:
        return len(self.weight.parts[PARTS[self.weight.format][0]])

    def picked(self, pick: Callable[[Tensor], Tensor]) -> "Stored":
        """Some of its outputs; what belongs to the whole tensor stays."""
        parts = {name: pick(part) if part.ndim == 2 else part for name, part in self.weight.parts.items()}
        return Stored(self.name, Weight(self.weight.format, parts), None if self.bias is None else pick(self.bias))

    def on(self, device: torch.device) -> Weight:
        return Weight(self.weight.format, {name: part.to(device) for name, part in self.weight.parts.items()})


@dataclass(frozen=True, slots=True)
class Module:
    """A weight as its kernel wants it, and a bias [outputs] float32 or None."""

    weight: Held
    bias: Tensor | None = None

    def __call__(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Rows [R, inputs] to [R, outputs] in `dtype`, or in x's own."""
        return linear(x, self.weight, self.bias, dtype=dtype)


def module_of(stored: Sequence[Stored], dtype: torch.dtype, device: torch.device) -> Module:
    """One module for several that read the same input; the scales of each stay its own.

    CheckpointError, naming the module, for one of another format than the first.
    """
    for one in stored:
        first = stored[0]
        if one.weight.format is not first.weight.format:
            problem = f"is {one.weight.format}, but {first.name}, which one launch makes with it, {first.weight.format}"
            raise CheckpointError(one.name, problem)
    weight = hold([one.on(device) for one in stored], dtype)
    if all(one.bias is None for one in stored):
        return Module(weight)
    biases = [torch.zeros(one.outputs) if one.bias is None else one.bias.float() for one in stored]
    return Module(weight, torch.cat(biases).to(device))


@dataclass(frozen=True, slots=True)
class Siblings:
    """Modules that read one input, one launch for each format: row [R, widths[i]] of module i, where it lies."""

    modules: tuple[Module, ...]
    places: tuple[tuple[int, int, int], ...]  # of each: the launch, and its columns there from and to

    @classmethod
    def of(cls, stored: Sequence[Stored], dtype: torch.dtype, device: torch.device) -> "Siblings":
        kinds = list(dict.fromkeys(one.weight.format for one in stored))
        ends, places = dict.fromkeys(kinds, 0), list[tuple[int, int, int]]()
        for one in stored:
            kind = one.weight.format
            start, ends[kind] = ends[kind], ends[kind] + one.outputs
            places.append((kinds.index(kind), start, ends[kind]))
        groups = ([one for one in stored if one.weight.format is kind] for kind in kinds)
        return cls(tuple(module_of(group, dtype, device) for group in groups), tuple(places))

    def __call__(self, x: Tensor) -> list[Tensor]:
        """What each module makes of rows [R, inputs]: parts of wider rows."""
        found = [module(x) for module in self.modules]
        return [found[launch][:, start:end] for launch, start, end in self.places]
