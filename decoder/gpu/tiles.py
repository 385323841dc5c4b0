"""How a linear module is cut into tiles: a function of its shape and format alone, never of the rows that it is given.

Weights lie on the M side of a product and tokens on its N side. A tile fixes the weights' rows of a program, the parts
into which their inputs are split, and which kind of matrix instruction runs over them, so every token meets one order
of additions, whatever the number of tokens; that number only chooses the width of the N side (`width_of`).
"""

from dataclasses import dataclass

WIDTHS = (16, 32, 64, 128)
"""Rows of tokens in one program."""

WAVE = 256
"""Programs that keep a large GPU busy; smaller modules are split along their inputs."""

LEAST = 256
"""Inputs that are worth a program of their own."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A program computes `outputs` outputs from one of `splits` equal parts of the inputs.

    `warps` and `stages` of each of WIDTHS. All warps, or none, are a multiple of four: on SM90 that is what decides
    between the two kinds of matrix instructions, whose sums may differ.
    """

    outputs: int
    splits: int
    warps: tuple[int, int, int, int]
    stages: tuple[int, int, int, int]

    def at(self, width: int) -> tuple[int, int]:
        """Warps and pipeline stages of a program of this width."""
        place = WIDTHS.index(width)
        return self.warps[place], self.stages[place]


def width_of(rows: int) -> int:
    """The narrowest width that holds so many rows of tokens, or the widest."""
    return next((width for width in WIDTHS if rows <= width), WIDTHS[-1])


WIDE, NARROW = (4, 4, 4, 8), (4, 4, 4, 4)  # warps
STAGES = {
    "nvfp4": (4, 4, 3, 3),
    "fp8": (4, 4, 3, 2),
    "fp8 x fp8": (4, 4, 3, 2),
    "dense": (4, 4, 3, 2),
    "float32": (2, 2, 2, 2),
}
TILES = {
    (34816, 5120, "nvfp4"): Tile(128, 3, WIDE, STAGES["nvfp4"]),
    (5120, 17408, "nvfp4"): Tile(128, 6, WIDE, STAGES["nvfp4"]),
    (10240, 5120, "nvfp4"): Tile(128, 8, WIDE, STAGES["nvfp4"]),
    (5120, 6144, "fp8"): Tile(64, 8, NARROW, (3, 4, 3, 2)),
}
"""Tiles that were measured to be better than the rule's (on an H200), by (outputs, inputs, format)."""

LARGE = 1024  # outputs from which on a program of NVFP4 takes 128 of them: it has more to compute per byte


def tile_of(outputs: int, inputs: int, kind: str) -> Tile:
    """The tile of a linear module with so many outputs and inputs in a format (a key of STAGES)."""
    found = TILES.get((outputs, inputs, kind))
    if found is not None:
        return found
    large = kind == "nvfp4" and outputs >= LARGE
    size = 128 if large else 64
    programs, splits = -(-outputs // size), 1
    while programs * splits < WAVE and inputs // (2 * splits) >= LEAST:
        splits *= 2
    return Tile(size, splits, WIDE if kind in ("nvfp4", "fp8 x fp8") else NARROW, STAGES[kind])
