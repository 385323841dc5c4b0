"""The fixed tile: everything that works row by row runs on 16 rows at a time, each tile as a call of its own.

On a CPU the bits of a row depend on the shape of the call that computes it: a lone row, a batch of 16 and a batch of 48
take different paths through a matrix product, and transcendental functions treat the tail of an array differently.
Inside a call of one fixed shape they depend on the row alone. So a row's result does not depend on the batch, on the
length of its span, on its place or on its neighbours.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TILE = 16

Kernel = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How many rows a kernel is given at a time; None gives it all of them at once, and promises nothing about bits."""

    size: int | None = TILE

    def ceil(self, count: int) -> int:
        """The number of rows that `count` rows are padded to."""
        return count if self.size is None else -(-count // self.size) * self.size

    def padded(self, rows: Tensor, least: int = 0) -> Tensor:
        """Rows [R, ...] with rows of zeros behind them, up to whole tiles, and to at least `least`."""
        missing = self.ceil(max(least, len(rows))) - len(rows)
        return rows if not missing else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])

    def run(self, kernel: Kernel, *rows: Tensor) -> tuple[Tensor, ...]:
        """Apply a kernel to whole tiles of rows [R, ...] each; every output is [R, ...]."""
        if self.size is None or len(rows[0]) == self.size:
            return kernel(*rows)
        tiles = zip(*(torch.split(side, self.size) for side in rows), strict=True)
        return tuple(torch.cat(parts) for parts in zip(*(kernel(*tile) for tile in tiles), strict=True))


TILED = Tiling()
