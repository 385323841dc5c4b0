"""A device of which nothing exists but sizes: what a pass allocates there is what it would allocate on a GPU."""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .interpreter import DEVICE as DEVICE  # isort: split

from benchmarks.gpu import synthetic
from specqual.contract.kernels import Weight
from specqual.contract.quantisation import Format
from specqual.decoder import gpu
from specqual.decoder.gpu import modules
from specqual.decoder.gpu.fp8 import Fp8
from specqual.decoder.gpu.linear import Held
from specqual.decoder.gpu.nvfp4_layout import Nvfp4

NOWHERE = torch.device("meta")
BLOCK = 512  # bytes, to whose multiples torch's allocator rounds


class Meter(TorchDispatchMode):
    """Counts the bytes of tensors that come and go while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._known: set[int] = set()  # of what was there before, all of which lives on
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._known |= storages((args, kwargs)).keys() - self._live.keys()
        found = func(*args, **(kwargs or {}))
        self._live = {key: one for key, one in self._live.items() if not one[0].expired()}
        for key, storage in storages(found).items():
            if key not in self._known and key not in self._live:
                self._live[key] = StorageWeakRef(storage), -(-storage.nbytes() // BLOCK) * BLOCK
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return found


def storages(what: Any) -> dict[int, torch.UntypedStorage]:
    """Those of the tensors that are nowhere, by where they would be known."""
    tensors = (one for one in tree_leaves(what) if isinstance(one, Tensor) and one.device == NOWHERE)
    return {storage._cdata: storage for storage in (one.untyped_storage() for one in tensors)}


class Silent:
    """A kernel that is launched and does nothing."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *_, **__: None


def weigh_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no kernel run, and weights be made of nothing but their shapes."""
    for found in pkgutil.iter_modules(gpu.__path__):
        module = import_module(f"{gpu.__name__}.{found.name}")
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, Silent())
    monkeypatch.setattr(modules, "hold", hold)
    monkeypatch.setattr(synthetic.Synthetic, "read", read)


def read(checkpoint: synthetic.Synthetic[Any], name: str) -> Tensor:
    stored = checkpoint.tensors[name]
    return torch.empty(stored.shape, dtype=synthetic.DTYPES[stored.dtype], device=NOWHERE)


def hold(weights: Sequence[Weight], dtype: torch.dtype) -> Held:
    """One module for several, its shapes right as far as a launch looks at them."""
    kind = weights[0].format
    rows = [weight.parts[modules.PARTS[kind][0]] for weight in weights]
    outputs, width = sum(map(len, rows)), rows[0].shape[1]
    outer, words = torch.empty(outputs, device=NOWHERE), torch.empty(1, outputs, 1, device=NOWHERE)
    if kind is Format.DENSE:
        return torch.empty(outputs, width, dtype=dtype, device=NOWHERE)
    return Fp8(words, outer, outputs, width) if kind is Format.FP8 else Nvfp4(words, words, outer, outputs, 2 * width)
