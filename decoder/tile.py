"""The fixed tile: everything that works row by row runs on 16 rows at a time, each tile as a call of its own.

On a CPU the bits of a row depend on the shape of the call that computes it: a lone row, a batch of 16 and a batch of 48
take different paths through a matrix product, and transcendental functions treat the tail of an array differently.
Inside a call of one fixed shape they depend on the row alone. So a row's result does not depend on the batch, on the
length of its span, on its place or on its neighbours.
"""

from collections.abc import Callable

import torch
from torch import Tensor

TILE = 16


def padded(rows: Tensor, least: int = 0) -> Tensor:
    """Rows [R, ...] with rows of zeros behind them, up to the next multiple of the tile, and to at least `least`."""
    missing = max(least - len(rows), 0)
    missing += -(len(rows) + missing) % TILE
    return rows if not missing else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


def tiled(kernel: Callable[..., tuple[Tensor, ...]], *rows: Tensor) -> tuple[Tensor, ...]:
    """Apply a kernel of 16 rows to whole tiles of rows [R, ...] each, R a multiple of 16; every output is [R, ...]."""
    tiles = zip(*(torch.split(side, TILE) for side in rows), strict=True)
    return tuple(torch.cat(parts) for parts in zip(*(kernel(*tile) for tile in tiles), strict=True))
