"""The launch of every linear kernel: programs over a module and its rows, and room for the parts of split inputs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .tiles import Tile, width_of

FLOATS = 2**25
"""Numbers of a workspace, 128 MiB: wider passes go through it block of rows after block of rows. It holds what a round
of 16 samples needs at 4,096 tokens, and one block of the widest programs that `tile_of` knows."""

TILES = 2**14
"""That count who arrived: as many as have parts in a workspace, and more."""


class Workspace(NamedTuple):
    """Room for parts: two launches that may run at once need one each."""

    parts: Tensor  # float32
    arrived: Tensor  # int32, zero before and after a launch


def grid_of(outputs: int, rows: int, tile: Tile, width: int) -> tuple[int, int, int]:
    """Programs: tiles of outputs, splits, blocks of rows."""
    return -(-outputs // tile.outputs), tile.splits, -(-rows // width)


def parts_of(outputs: int, rows: int, tile: Tile, width: int) -> int:
    """The float32 numbers that all programs leave for the last ones; none without splits."""
    tiles, splits, blocks = grid_of(outputs, rows, tile, width)
    return tiles * blocks * splits * tile.outputs * width if splits > 1 else 0


def block_of(outputs: int, rows: int, tile: Tile, width: int) -> int:
    """The rows of one launch: all without splits, else those whose parts a workspace holds, one width at least."""
    size = parts_of(outputs, width, tile, width)
    return min(rows, width * max(1, FLOATS // size)) if size else rows


def sizes_of(outputs: int, rows: int, tile: Tile, width: int) -> tuple[int, int]:
    """Of a workspace: its parts, and the tiles that count who arrived."""
    rows = block_of(outputs, rows, tile, width)
    tiles, splits, blocks = grid_of(outputs, rows, tile, width)
    return parts_of(outputs, rows, tile, width), tiles * blocks if splits > 1 else 0


def of_size(device: torch.device, parts: int = 0, arrived: int = 0) -> Workspace:
    """A workspace; one that is larger than all others only where that is asked for."""
    return Workspace(
        torch.empty(max(parts, FLOATS), dtype=torch.float32, device=device),
        torch.zeros(max(arrived, TILES), dtype=torch.int32, device=device),
    )


_OWNED: dict[tuple[torch.device, int], Workspace] = {}
"""By device and stream: launches of one stream never run at once, so one workspace serves them all."""


def owned(device: torch.device, parts: int = 0, arrived: int = 0) -> Workspace:
    """The workspace of the stream that launches go to now, made larger first where it has less than is asked for.

    Whoever records launches keeps what they used, since a larger one may take its place here.
    """
    place = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    found = _OWNED.get(place)
    have = (0, 0) if found is None else (len(found.parts), len(found.arrived))
    if found is None or have[0] < parts or have[1] < arrived:
        with torch.inference_mode(False):  # whoever comes next may write to it in any mode
            found = _OWNED[place] = of_size(device, max(parts, have[0]), max(arrived, have[1]))
    return found


def launch(
    kernel: Any,
    given: Sequence[Tensor],
    operands: Sequence[Tensor],
    out: Tensor,
    sizes: Sequence[int],
    tile: Tile,
    workspace: Workspace | None = None,
    *,
    width: int | None = None,
    **constants: Any,
) -> Tensor:
    """Run a linear kernel over given rows and return what it writes, `out` [rows, outputs].

    A kernel takes what is given by rows, its operands, `out`, the workspace, rows and outputs, and its other `sizes`,
    in this order. Rows are taken `width` at a time, by default as `width_of` says; without rows nothing is launched,
    and where a workspace does not hold their parts there are several launches. By default it is the stream's own.
    """
    rows, outputs = out.shape
    if not rows:
        return out
    width = width or width_of(rows)
    block = block_of(outputs, rows, tile, width)
    workspace = workspace or owned(out.device, *sizes_of(outputs, rows, tile, width))
    warps, stages = tile.at(width)
    for begin in range(0, rows, block):
        goal = out[begin : begin + block]
        kernel[grid_of(outputs, len(goal), tile, width)](
            *(side[begin : begin + block] for side in given),
            *operands,
            goal,
            *workspace,
            len(goal),
            outputs,
            *sizes,
            M=tile.outputs,
            N=width,
            SPLITS=tile.splits,
            num_warps=warps,
            num_stages=stages,
            enable_fp_fusion=False,
            **constants,
        )
    return out
