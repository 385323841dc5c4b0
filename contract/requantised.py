"""A drafter's checkpoint as if its dense linear modules had been stored in NVFP4: quantised when they are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .checkpoint import Checkpoint
from .draft import DraftConfig
from .quantisation import Format, Quantisation
from .schema import draft_linears, whole_blocks

Quantise = Callable[[Tensor], Mapping[str, Tensor]]
"""A weight [out, in] to the parts of ModelOpt's layout by suffix: `weight`, `weight_scale`, `weight_scale_2`."""


@dataclass(frozen=True, slots=True)
class Requantised(Checkpoint[DraftConfig]):
    """`made` gives the parts of a module, and nothing for what is read as it is stored."""

    made: Callable[[str], Mapping[str, Tensor]] = lambda module: {}

    def read(self, name: str) -> Tensor:
        """A part of a module, made of its dense weight where that is stored; any other tensor as its file has it."""
        module, _, suffix = name.rpartition(".")
        parts = self.made(module)
        return parts[suffix] if suffix in parts else Checkpoint.read(self, name)


def in_nvfp4(
    checkpoint: Checkpoint[DraftConfig], quantise: Quantise, device: torch.device | str = "cpu"
) -> Checkpoint[DraftConfig]:
    """A drafter whose dense modules are NVFP4, made on a device module by module, none kept but the last.

    CheckpointError names a module that has no whole blocks.
    """
    stored = checkpoint.quantisation

    @lru_cache(maxsize=1)
    def made(module: str) -> Mapping[str, Tensor]:
        if module not in linears or stored.format_of(module) is not Format.DENSE:
            return {}
        return quantise(checkpoint.read(f"{module}.weight").to(device))

    linears = draft_linears(checkpoint.config)
    return Requantised(
        checkpoint.directory,
        checkpoint.config,
        formats_in_nvfp4(checkpoint.config, stored),
        checkpoint.tensors,
        checkpoint.left_out,
        made,
    )


def formats_in_nvfp4(config: DraftConfig, stored: Quantisation) -> Quantisation:
    """The formats of a drafter's modules where all that are stored dense are NVFP4 instead; errors as above."""
    kinds = dict[str, Format]()
    for name, (_, inputs, _) in draft_linears(config).items():
        kind = stored.format_of(name)
        kinds[name] = Format.NVFP4 if kind is Format.DENSE else kind
        whole_blocks(name, inputs)
    return Quantisation(exact=tuple(kinds.items()))
