"""Checkpoints without files: every tensor that a configuration asks for, made where and when it is read.

Names, shapes and formats are those of the schema, so the decoder's own loaders run unchanged. Numbers are scaled so
that activations stay finite through all layers; they mean nothing, and a draft is accepted by accident only.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from specqual.contract.checkpoint import C, Checkpoint, Stored, read_draft, read_target
from specqual.contract.config import TargetConfig
from specqual.contract.draft import DraftConfig
from specqual.contract.requantised import formats_in_nvfp4
from specqual.contract.schema import Expected, Schema, draft_schema, target_schema

CODES_RMS = 2.926  # root mean square of the sixteen e2m1 codes
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn, "U8": torch.uint8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic(Checkpoint[C]):
    """A checkpoint of `device`, always the same one for a seed. `plus_one`: gains of norms are what is added to one."""

    device: torch.device
    seed: int = 0
    plus_one: bool = False

    def read(self, name: str) -> Tensor:
        """Make one tensor, in the dtype in which it would be stored; KeyError if the schema has no such one."""
        stored = self.tensors[name]
        source = torch.Generator(self.device).manual_seed(self.seed ^ crc32(name.encode()))

        def normal() -> Tensor:
            kind = torch.float32 if stored.dtype == "F32" else torch.bfloat16
            return torch.randn(stored.shape, dtype=kind, device=self.device, generator=source)

        def uniform(low: float, high: float) -> Tensor:
            return torch.rand(stored.shape, device=self.device, generator=source) * (high - low) + low

        if stored.dtype == "U8":  # pairs of codes
            return torch.randint(256, stored.shape, dtype=torch.uint8, device=self.device, generator=source)
        return self._made(name, stored, normal, uniform).to(DTYPES[stored.dtype])

    def _made(
        self,
        name: str,
        stored: Stored,
        normal: Callable[[], Tensor],
        uniform: Callable[[float, float], Tensor],
    ) -> Tensor:
        module, _, last = name.rpartition(".")
        if stored.dtype == "F8_E4M3":
            return normal() if last == "weight" else uniform(0.5, 1.5)  # codes, or the scales of blocks
        if last in ("weight_scale", "weight_scale_2"):
            width = self.tensors[f"{module}.weight"].shape[1]
            scale = width**-0.5 if last == "weight_scale" else (2 * width) ** -0.5 / CODES_RMS
            return torch.full(stored.shape, scale, device=self.device)
        if last == "A_log":
            return uniform(1, 16).log()
        if last == "dt_bias":  # softplus of it lies between 0.001 and 0.1, so that states last
            return uniform(math.log(0.001), math.log(0.1)).exp().expm1().log()
        if "norm" in name:
            plain = 0.0 if self.plus_one and not name.endswith("linear_attn.norm.weight") else 1.0
            return plain + 0.1 * normal()
        if last == "base_kernel":
            return 0.5 * normal()
        return normal() * float(stored.shape[-1]) ** -0.5


def synthetic_target(directory: Path, device: torch.device, seed: int = 0) -> Synthetic[TargetConfig]:
    """A target of the configuration in a directory; errors as open_target."""
    config, kinds = read_target(directory)
    tensors = tensors_of(target_schema(config, kinds), seed)
    return Synthetic(directory, config, kinds, tensors, device=device, seed=2 * seed, plus_one=config.norm_plus_one)


def synthetic_draft(
    directory: Path, target: TargetConfig, device: torch.device, seed: int = 0, *, nvfp4: bool = False
) -> Synthetic[DraftConfig]:
    """A drafter for a target, as its configuration stores it, or with its dense modules in NVFP4."""
    config, kinds = read_draft(directory, target)
    kinds = formats_in_nvfp4(config, kinds) if nvfp4 else kinds
    tensors = tensors_of(draft_schema(config, kinds), seed)
    return Synthetic(directory, config, kinds, tensors, device=device, seed=2 * seed + 1)


def tensors_of(schema: Schema, seed: int) -> Mapping[str, Stored]:
    """All that must be there, with its first shape."""
    where = Path(f"seed-{seed}")
    return {
        name: Stored(where, name, expected.shapes[0], dtype_of(name, expected))
        for name, expected in schema.items()
        if not expected.optional
    }


def dtype_of(name: str, expected: Expected) -> str:
    """bfloat16 where any float will do, except for what recurrent layers keep wider."""
    if len(expected.dtypes) == 1:
        return next(iter(expected.dtypes))
    return "F32" if name.endswith(("A_log", "dt_bias")) else "BF16"
