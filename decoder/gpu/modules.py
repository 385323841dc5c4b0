"""Linear modules on the device: every weight in the format that its file has, laid out once for its kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.quantisation import Format

from . import dense, fp8, nvfp4
from .fp8 import Fp8
from .nvfp4 import Nvfp4

Weight = Tensor | Fp8 | Nvfp4

PARTS = {
    Format.DENSE: ("weight",),
    Format.FP8: ("weight", "weight_scale"),
    Format.NVFP4: ("weight", "weight_scale", "weight_scale_2"),
    Format.NVFP4_PACKED: ("weight_packed", "weight_scale", "weight_global_scale"),
}
"""What a module is stored as, by suffix: rows first, then the scale or scales."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A linear module as its file has it: row o of every part but the last of a quantised one belongs to output o."""

    kind: Format
    parts: tuple[Tensor, ...]
    bias: Tensor | None

    @classmethod
    def read(cls, checkpoint: Checkpoint[Any], name: str) -> "Stored":
        kind = checkpoint.quantisation.format_of(name)
        bias = checkpoint.read(f"{name}.bias") if f"{name}.bias" in checkpoint.tensors else None
        return cls(kind, tuple(checkpoint.read(f"{name}.{suffix}") for suffix in PARTS[kind]), bias)

    def picked(self, pick: Callable[[Tensor], Tensor]) -> "Stored":
        """Some of its outputs; a scale of the whole tensor stays."""
        parts = [pick(part) if part.ndim == 2 else part for part in self.parts]
        return Stored(self.kind, tuple(parts), None if self.bias is None else pick(self.bias))


@dataclass(frozen=True, slots=True)
class Module:
    """A weight as its kernel wants it, and a bias [outputs] or None."""

    weight: Weight
    bias: Tensor | None

    def __call__(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Rows [R, inputs] to [R, outputs] in `dtype`, or in x's own."""
        kernel: Any = nvfp4 if isinstance(self.weight, Nvfp4) else fp8 if isinstance(self.weight, Fp8) else dense
        found: Tensor = kernel.linear(x, self.weight, self.bias, dtype=dtype)
        return found


def module_of(stored: Sequence[Stored], dtype: torch.dtype, device: torch.device) -> Module:
    """One module for several of one format that read the same input; the scales of each stay its own.

    Rows of float32 meet dense weights only: quantised ones are decoded for them here, as their kernels decode them.
    """
    kinds = {one.kind for one in stored}
    if len(kinds) > 1:
        raise ValueError(f"format: modules that are run together are stored as {', '.join(sorted(kinds))}")
    weight = laid(kinds.pop(), [one.parts for one in stored], dtype, device)
    if dtype is not torch.bfloat16 and not isinstance(weight, Tensor):
        weight = (fp8.unlaid(weight) if isinstance(weight, Fp8) else nvfp4.unlaid(weight)).to(dtype)
    biases = [one.bias for one in stored]
    if all(bias is None for bias in biases):
        return Module(weight, None)
    rows = [len(one.parts[0]) for one in stored]
    filled = [torch.zeros(count) if bias is None else bias.float() for count, bias in zip(rows, biases, strict=True)]
    return Module(weight, torch.cat(filled).to(device, torch.float32))


def laid(kind: Format, parts: Sequence[tuple[Tensor, ...]], dtype: torch.dtype, device: torch.device) -> Weight:
    """The weights of several modules of one format behind each other."""
    sides = [[side.to(device) for side in column] for column in zip(*parts, strict=True)]
    if kind is Format.DENSE:
        return torch.cat(sides[0]).to(dtype).contiguous()
    if kind is Format.FP8:
        return fp8.lay(joined(sides[0]), spread(sides[1], sides[0]))
    codes, scale, outer = sides
    return nvfp4.lay(torch.cat(codes), joined(scale), spread(outer, codes), divide=kind is Format.NVFP4_PACKED)


def joined(sides: Sequence[Tensor]) -> Tensor:
    """Tensors of e4m3 behind each other."""
    return torch.cat([side.view(torch.uint8) for side in sides]).view(torch.float8_e4m3fn)


def spread(scales: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """The scale of each output, float32."""
    return torch.cat([scale.float().reshape(-1).expand(len(side)) for scale, side in zip(scales, rows, strict=True)])


def grouped(stored: Sequence[Stored]) -> list[list[int]]:
    """The places of modules that read one input, by format, in order of their first."""
    kinds = list(dict.fromkeys(one.kind for one in stored))
    return [[place for place, one in enumerate(stored) if one.kind is kind] for kind in kinds]


@dataclass(frozen=True, slots=True)
class Siblings:
    """Modules that read one input, one launch for each format: row [R, widths[i]] of module i, where it lies."""

    modules: tuple[Module, ...]
    places: tuple[tuple[int, int, int], ...]  # of each: the launch, and its columns there from and to

    @classmethod
    def of(cls, stored: Sequence[Stored], dtype: torch.dtype, device: torch.device) -> "Siblings":
        modules, places = list[Module](), dict[int, tuple[int, int, int]]()
        for launch, group in enumerate(grouped(stored)):
            end = 0
            for place in group:
                start, end = end, end + len(stored[place].parts[0])
                places[place] = launch, start, end
            modules.append(module_of([stored[place] for place in group], dtype, device))
        return cls(tuple(modules), tuple(places[place] for place in range(len(stored))))

    def __call__(self, x: Tensor) -> list[Tensor]:
        """What each module makes of rows [R, inputs]: parts of wider rows."""
        found = [module(x) for module in self.modules]
        return [found[launch][:, start:end] for launch, start, end in self.places]
