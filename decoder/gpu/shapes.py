"""The linear modules of the geometries that ship, fused as the decoder runs them: what is audited and timed.

Formats are those of the published 27B checkpoint; a drafter and the 4B target are bfloat16 as published, and NVFP4 when
they are quantised at load.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .audit import Case
from .tiles import WIDTHS, Tile, tile_of


class Module(NamedTuple):
    """A linear module by its sizes."""

    name: str
    outputs: int
    inputs: int
    kinds: tuple[str, ...]


WEIGHT_ONLY = ("dense", "nvfp4")
MODULES = (
    Module("27B attention in", 14336, 5120, ("fp8",)),  # query and its gate, key, value
    Module("27B attention out", 5120, 6144, ("fp8",)),
    Module("27B delta-net in", 16384, 5120, ("fp8",)),  # mixed and z
    Module("27B delta-net gates", 96, 5120, ("dense",)),  # b and a
    Module("27B delta-net out", 5120, 6144, ("fp8",)),
    Module("27B gate and up", 34816, 5120, WEIGHT_ONLY),  # of the drafter too
    Module("27B down", 5120, 17408, WEIGHT_ONLY),
    Module("27B head", 248320, 5120, ("nvfp4",)),
    Module("27B draft features", 5120, 25600, WEIGHT_ONLY),
    Module("27B draft context", 10240, 5120, WEIGHT_ONLY),  # keys and values of five layers
    Module("27B draft attention in", 6144, 5120, WEIGHT_ONLY),
    Module("27B draft attention out", 5120, 4096, WEIGHT_ONLY),
    Module("27B draft convolution", 1280, 5120, WEIGHT_ONLY),
    Module("27B draft selector", 256, 5120, WEIGHT_ONLY),
    Module("4B attention in", 6144, 2560, WEIGHT_ONLY),
    Module("4B attention out", 2560, 4096, WEIGHT_ONLY),
    Module("4B gate and up", 19456, 2560, WEIGHT_ONLY),
    Module("4B down", 2560, 9728, WEIGHT_ONLY),
    Module("4B head", 151936, 2560, WEIGHT_ONLY),
    Module("4B draft features", 2560, 12800, WEIGHT_ONLY),
    Module("4B draft context", 10240, 2560, WEIGHT_ONLY),
    Module("4B draft convolution", 640, 2560, WEIGHT_ONLY),
    Module("4B draft selector", 256, 2560, WEIGHT_ONLY),
)


def of_kind(kind: str) -> list[Module]:
    """The modules that come in a format."""
    return [module for module in MODULES if kind in module.kinds]


class Variant(NamedTuple):
    """A tile at one of its widths: one compilation of a linear kernel."""

    tile: Tile
    width: int


def variants(kind: str, stored: str | None = None) -> Sequence[Variant]:
    """All that the modules of a format use, each once; `stored` in another one than they are multiplied in."""
    tiles = dict.fromkeys(tile_of(module.outputs, module.inputs, kind) for module in of_kind(stored or kind))
    return [Variant(tile, width) for tile in tiles for width in WIDTHS]


def case(name: str, kernel: Any, one: Variant, signature: Mapping[str, str], **constants: Any) -> Case:
    """A linear kernel at a tile and a width; all widths of a tile are one family."""
    tile, (warps, stages) = one.tile, one.tile.at(one.width)
    return Case(
        f"{name} {tile.outputs}x{one.width}/{tile.splits}",
        kernel,
        signature,
        {"M": tile.outputs, "N": one.width, "SPLITS": tile.splits, **constants},
        warps=warps,
        stages=stages,
        fusion=False,
        family=f"{name} {tile.outputs}/{tile.splits}",
    )
