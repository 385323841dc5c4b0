"""The decoder of a device on the definitions of its kernels: what goes on around kernels, a hundred times as fast."""

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from .interpreter import DEVICE as DEVICE  # isort: split

from specqual.decoder import gpu
from specqual.decoder.gpu import attention_backends
from specqual.decoder.gpu.attention import attention_torch

FEWER = ("heads_torch", "block_convolution_torch")  # leave out rows that belong to no sample
NARROW = ("linear_torch", "rms_norm_torch", "silu_mul_torch", "sigmoid_mul_torch", "gated_norm_torch")
"""Whose last bits depend on how many rows there are, unless they compute in float64."""
EXACT = ("convolution_torch",)
"""The same of those that compute in the dtype of their weights, and round to that of what they fill."""


def run_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every function that has a torch twin be that twin, everywhere in the package; on a GPU, kernels are tried."""
    if DEVICE == "cuda":
        return  # a graph could not hold the twins
    names = [f"{gpu.__name__}.{found.name}" for found in pkgutil.iter_modules(gpu.__path__)]
    modules = [import_module(name) for name in names]
    how = {**dict.fromkeys(FEWER, whole), **dict.fromkeys(NARROW, widened), **dict.fromkeys(EXACT, weighed)}
    twins = dict[Any, Any]()
    for module in modules:
        for name, twin in vars(module).items():
            if name.endswith("_torch") and getattr(twin, "__module__", "") == module.__name__:
                made = how[name](twin) if name in how else twin
                twins[vars(module).get(name.removesuffix("_torch"))] = made
    for module in modules:
        for name, value in list(vars(module).items()):
            if callable(value) and value in twins:
                monkeypatch.setattr(module, name, twins[value])
    monkeypatch.setitem(attention_backends.BACK_ENDS, "own", attention_torch)


def whole(twin: Callable[..., Any]) -> Callable[..., Any]:
    """A twin whose answers have all rows; those that belong to no sample hold what no one may look at."""

    def run(*given: Any, **named: Any) -> Any:
        rows = next(len(one) for one in given if isinstance(one, torch.Tensor))
        found = twin(*given, **named)
        sides = [filled(side, rows) for side in (found if isinstance(found, tuple) else (found,))]
        return tuple(sides) if isinstance(found, tuple) else sides[0]

    return run


def widened(twin: Callable[..., Any]) -> Callable[..., Any]:
    """A twin that computes in float64, and rounds to what its first argument is, or what it is asked for."""

    def run(x: torch.Tensor, *given: Any, **named: Any) -> Any:
        dtype = named.pop("dtype", None) or next((one for one in given if isinstance(one, torch.dtype)), x.dtype)
        wide = [one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in given]
        found = twin(x.double(), *wide, **named)
        return tuple(side.to(dtype) for side in found) if isinstance(found, tuple) else found.to(dtype)

    return run


def weighed(twin: Callable[..., Any]) -> Callable[..., Any]:
    """A twin that is given its weights, which are in float32, in float64."""

    def run(*given: Any, **named: Any) -> Any:
        return twin(*(one.double() if getattr(one, "dtype", None) == torch.float32 else one for one in given), **named)

    return run


def filled(side: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([side, side.new_full((max(0, rows - len(side)), *side.shape[1:]), float("nan"))])
