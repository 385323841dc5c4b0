"""Models and pools on the device, made when they are first asked for and shared by all parts of a run."""

import gc
from dataclasses import dataclass, field
from pathlib import Path

import torch

from specqual import fixtures
from specqual.contract.checkpoint import read_draft, read_target
from specqual.decoder.gpu.budget import Pair
from specqual.decoder.gpu.target import DeviceTarget
from specqual.decoder.memory import Store

from .rig import Rig, drafter_of, pools, target_of


@dataclass(slots=True)
class Session:
    """One geometry on one device; at most one drafter is there at any time."""

    target_path: Path
    draft_path: Path
    device: torch.device
    samples: int
    context: int
    target: DeviceTarget | None = None
    found: Rig | None = None
    pool: Store | None = None
    load_seconds: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, device: torch.device, samples: int, context: int) -> "Session":
        """A fixture that has a drafter of the same name with -dflash2 behind it."""
        return cls(fixtures.path(name), fixtures.path(f"{name}-dflash2"), device, samples, context)

    @property
    def pair(self) -> Pair:
        target, kinds = read_target(self.target_path)
        return Pair(target, kinds, *read_draft(self.draft_path, target))

    def rig(self, nvfp4_draft: bool) -> Rig:
        """The target with one of the two drafters."""
        if self.found is None or self.found.nvfp4_draft is not nvfp4_draft:
            self.found = None
            tidy(self.device)
            self.target = self.target or target_of(self.target_path, self.draft_path, self.device)
            self.found = Rig(self.target, drafter_of(self.draft_path, self.target, nvfp4=nvfp4_draft), nvfp4_draft)
            tidy(self.device)
        return self.found

    def store(self, rig: Rig) -> Store:
        """Pools that hold every cell; empty between measurements."""
        self.pool = self.pool or pools(rig, self.samples, self.context)
        return self.pool

    def drop(self) -> None:
        """Let everything go."""
        self.target = self.found = self.pool = None
        tidy(self.device)


def tidy(device: torch.device) -> None:
    """Give back to the device what nobody holds."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
