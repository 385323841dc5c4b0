"""Changed copies of a checkpoint: one tensor or one key at a time."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a stored tensor; `expect` is "refused", or "used" where the copy is a valid checkpoint."""

    name: str
    expect: str
    apply: Callable[[Tensors, str], None]


def _delete(tensors: Tensors, name: str) -> None:
    del tensors[name]


def _rename(tensors: Tensors, name: str) -> None:
    tensors[f"{name}_renamed"] = tensors.pop(name)


def _double(tensors: Tensors, name: str) -> None:
    tensors[f"{name}_twin"] = tensors[name].clone()


def _misshape(tensors: Tensors, name: str) -> None:
    tensor = tensors[name]
    tensors[name] = tensor.repeat(2, *[1] * (tensor.ndim - 1)) if tensor.ndim else tensor.repeat(2)


def _retype(tensors: Tensors, name: str) -> None:
    tensors[name] = torch.zeros(tensors[name].shape, dtype=torch.int64)


def _permute(tensors: Tensors, name: str) -> None:
    """Reverse the order of all numbers; where that changes nothing, scale every second one by -3/4: a norm may hide its
    size, and floating point a power of two."""
    tensor = tensors[name]
    flat = tensor.flatten()
    if tensor.dtype.itemsize == 1:  # packed or 8-bit numbers: their bytes are as good as any
        flat = flat.view(torch.uint8)
    other = flat.flip(0)
    if torch.equal(other, flat):
        other = flat.clone()
        other[::2] = other[::2] // 2 if flat.dtype is torch.uint8 else other[::2] * -0.75
    tensors[name] = other.view(tensor.dtype).reshape(tensor.shape).contiguous()


DELETE, PERMUTE = Change("deleted", "refused", _delete), Change("permuted", "used", _permute)
CHANGES = (
    DELETE,
    Change("renamed", "refused", _rename),
    Change("beside a twin of another name", "refused", _double),
    Change("with twice the rows", "refused", _misshape),
    Change("of integer type", "refused", _retype),
    PERMUTE,
)


def read_tensors(directory: Path) -> Tensors:
    """Every tensor of a checkpoint directory, whatever the number of its files."""
    tensors: Tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    return tensors


@contextmanager
def changed(
    directory: Path,
    *,
    tensors: Callable[[Tensors], None] | None = None,
    config: Callable[[dict[str, Any]], None] | None = None,
    files: Callable[[Path], None] | None = None,
) -> Iterator[Path]:
    """A copy of a checkpoint directory with these functions applied to its tensors, its config.json and its files."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / directory.name
        copy.mkdir()
        for path in directory.iterdir():
            stored = path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json")
            if path.is_file() and not (stored and tensors is not None):
                shutil.copyfile(path, copy / path.name)
        if tensors is not None:
            content = read_tensors(directory)
            tensors(content)
            save_file(content, copy / "model.safetensors", metadata={"format": "pt"})
        if config is not None:
            keys = json.loads((copy / "config.json").read_text(encoding="utf-8"))
            config(keys)
            (copy / "config.json").write_text(json.dumps(keys), encoding="utf-8")
        if files is not None:
            files(copy)
        yield copy
