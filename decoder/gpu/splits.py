"""The launch of every linear kernel: programs over a module and its rows, and room for the parts of split inputs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .tiles import Tile, width_of


class Workspace(NamedTuple):
    """Room for parts, owned by whoever launches: two launches that may run at once need one each."""

    parts: Tensor  # float32
    arrived: Tensor  # int32, zero before and after a launch


def grid_of(outputs: int, rows: int, tile: Tile, width: int) -> tuple[int, int, int]:
    """Programs: tiles of outputs, splits, blocks of rows."""
    return -(-outputs // tile.outputs), tile.splits, -(-rows // width)


def parts_of(outputs: int, rows: int, tile: Tile, width: int) -> int:
    """The float32 numbers that all programs leave for the last ones; none without splits."""
    tiles, splits, blocks = grid_of(outputs, rows, tile, width)
    return tiles * blocks * splits * tile.outputs * width if splits > 1 else 0


def room(outputs: int, rows: int, tile: Tile, width: int, device: torch.device) -> Workspace:
    """A workspace for one module and so many rows; a larger one serves as well."""
    tiles, splits, blocks = grid_of(outputs, rows, tile, width)
    return Workspace(
        torch.empty(max(parts_of(outputs, rows, tile, width), 4), dtype=torch.float32, device=device),
        torch.zeros(max(tiles * blocks if splits > 1 else 0, 4), dtype=torch.int32, device=device),
    )


def launch(
    kernel: Any,
    operands: Sequence[Tensor],
    out: Tensor,
    rows: int,
    sizes: Sequence[int],
    tile: Tile,
    workspace: Workspace | None = None,
    *,
    width: int | None = None,
    **constants: Any,
) -> Tensor:
    """Run a linear kernel over `rows` rows and return what it writes, `out` [rows, outputs].

    A kernel takes its operands, `out`, the workspace, rows and outputs, and its other `sizes`, in this order. Rows are
    taken `width` at a time, by default as `width_of` says; without rows nothing is launched.
    """
    if not rows:
        return out
    outputs, width = out.shape[1], width or width_of(rows)
    workspace = workspace or room(outputs, rows, tile, width, out.device)
    warps, stages = tile.at(width)
    kernel[grid_of(outputs, rows, tile, width)](
        *operands,
        out,
        *workspace,
        rows,
        outputs,
        *sizes,
        M=tile.outputs,
        N=width,
        SPLITS=tile.splits,
        num_warps=warps,
        num_stages=stages,
        **constants,
    )
    return out
