"""Two states that should be one: where they first differ, and by how much."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

RECURRENT = (".state", ".conv")


def rows(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in sorted(tensors.items()) if not name.endswith(RECURRENT)}


def recurrent(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in sorted(tensors.items()) if name.endswith(RECURRENT)}


def first_difference(
    expected: Mapping[str, torch.Tensor],
    actual: Mapping[str, torch.Tensor],
    positions: Mapping[str, Sequence[int]],
    wanted: Mapping[str, Sequence[int]],
    tolerance: float,
) -> Iterator[tuple[str, Any, Any]]:
    """What is different, and both values; nothing where no number differs by more than the tolerance."""
    if list(expected) != list(actual):
        yield "names of tensors", list(expected), list(actual)
        return
    for name, tensor in expected.items():
        mine, theirs = list(wanted.get(name, ())), list(positions.get(name, ()))
        if mine != theirs:
            yield f"positions of {name}", mine, theirs
        elif tensor.shape != actual[name].shape:
            yield f"shape of {name}", list(tensor.shape), list(actual[name].shape)
        else:
            off = (tensor.double() - actual[name].double()).abs().flatten(1) if tensor.numel() else torch.zeros(0, 1)
            bad = ~(off <= tolerance)  # so that NaN differs
            if bad.any():
                row = int(bad.any(1).nonzero()[0])
                column = int(bad[row].nonzero()[0])
                at = f", position {mine[row]}" if mine else ""
                values = (float(side.flatten(1)[row, column]) for side in (tensor, actual[name]))
                yield (f"{name} row {row}{at}", *values)


def largest(expected: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor]) -> float:
    """The largest difference of any number; zero where nothing can be compared."""
    pairs = [(tensor, actual[name]) for name, tensor in expected.items() if name in actual and tensor.numel()]
    return max((float((a.double() - b.double()).abs().max()) for a, b in pairs if a.shape == b.shape), default=0.0)
