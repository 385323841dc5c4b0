"""How attention is cut into pieces: positions of a program, and where the parts lie that pieces give.

Pieces, and the steps within a piece, lie at fixed absolute positions. Parts lie in a workspace of one size: rows whose
parts it does not hold go block after block.
"""

from typing import NamedTuple

import triton.language as tl
from torch import Tensor

from ..view import PAGE
from .splits import FLOATS, Workspace

LOWEST = tl.constexpr(-1e30)  # below every score, and finite, so that nothing is subtracted from itself at infinity
QUERIES = 16  # of a tile: rows of a sample, and all heads that share a key head


class Cut(NamedTuple):
    """How attention with one head size and dtype is cut into programs."""

    piece: int  # positions of a program
    step: int  # of them at a time
    tiles: int  # of queries, at most
    warps: int
    stages: int


CUTS = {(256, 2, 2): Cut(128, 64, 3, 8, 2), (256, 2, 1): Cut(128, 64, 3, 8, 1)}
"""By head size, and bytes of a number of queries and of the cache."""


def cut_of(depth: int, size: int, cached: int) -> Cut:
    return CUTS.get((depth, size, cached), Cut(128, 64, 2, 4, 2) if size == 2 else Cut(128, 16, 1, 4, 2))


class Parts(NamedTuple):
    """What every piece gives for every row of a block and head; pieces of the cache, and behind them the own rows."""

    found: Tensor  # float32, in the order rows, heads, pieces, d
    best: Tensor  # float32, rows, heads, pieces: the highest score, to base 2
    mass: Tensor  # float32, rows, heads, pieces


def pieces_of(width: int, cut: Cut, own: bool) -> int:
    """The pieces of a table of so many pages, and one for the block's own rows."""
    return -(-width * PAGE // cut.piece) + own


def numbers_of(rows: int, heads: int, depth: int, pieces: int) -> int:
    """The float32 numbers of the parts of so many rows; each side begins at a multiple of 16 bytes."""
    count = rows * heads * pieces
    return count * depth + 2 * (count + -count % 4)


def block_of(heads: int, depth: int, pieces: int, whole: int) -> int:
    """The rows whose parts a workspace holds, one at least; those of whole programs, if of any."""
    rows = max(1, FLOATS // numbers_of(1, heads, depth, pieces))
    return rows // whole * whole or rows


def parts_of(workspace: Workspace, rows: int, heads: int, depth: int, pieces: int) -> Parts:
    """Where the parts of so many rows lie."""
    count, room = rows * heads * pieces, workspace.parts
    best, mass = count * depth, count * depth + count + -count % 4
    return Parts(room[:best], room[best : best + count], room[mass : mass + count])
