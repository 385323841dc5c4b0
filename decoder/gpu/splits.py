"""Room for the parts of a module whose inputs are split, and the grid of programs over a module and its rows."""

from typing import NamedTuple

import torch
from torch import Tensor

from .tiles import Tile


class Workspace(NamedTuple):
    """Room for parts, owned by whoever launches: two launches that may run at once need one each."""

    parts: Tensor  # float32
    arrived: Tensor  # int32, zero before and after a launch


def grid_of(outputs: int, rows: int, tile: Tile, width: int) -> tuple[int, int, int]:
    """Programs: tiles of outputs, splits, blocks of rows."""
    return -(-outputs // tile.outputs), tile.splits, -(-rows // width)


def room(outputs: int, rows: int, tile: Tile, width: int, device: torch.device) -> Workspace:
    """A workspace for one module and so many rows; a larger one serves as well."""
    tiles, splits, blocks = grid_of(outputs, rows, tile, width)
    parts = tiles * blocks * splits * tile.outputs * width if splits > 1 else 0
    arrived = tiles * blocks if splits > 1 else 0
    return Workspace(
        torch.empty(max(parts, 4), dtype=torch.float32, device=device),
        torch.zeros(max(arrived, 4), dtype=torch.int32, device=device),
    )
