"""What a pass is told from round to round, carried to the device in one copy."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ..memory import Memory
from ..pages import Stream
from .spans import Ledger, Spans


class Piece(NamedTuple):
    """New tokens of one sample from `start` on, the first `certain` of which will stay."""

    memory: Memory
    ids: tuple[int, ...]
    start: int
    boundary: int  # where its recurrent state stands
    certain: int

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


class Told(NamedTuple):
    """The same of all samples of a pass, as the kernels read it."""

    ids: Tensor  # [R] int32
    spans: Spans
    ledger: Ledger
    tables: dict[str, Tensor]  # by stream, [B, width] int32
    most: int  # rows of one sample, at most


def told(pieces: Sequence[Piece], streams: Sequence[Stream], device: torch.device) -> Told:
    """Lay out pieces behind each other, with the page tables of these streams."""
    lengths = [len(piece.ids) for piece in pieces]
    sides = [
        [token for piece in pieces for token in piece.ids],
        [0, *accumulate(lengths)],
        [piece.start for piece in pieces],
        [piece.memory.slot or 0 for piece in pieces],
        [piece.boundary for piece in pieces],
        [piece.certain for piece in pieces],
    ]
    width = max((len(piece.memory.tables[stream.name]) for piece in pieces for stream in streams), default=0)
    for stream in streams:
        tables = (piece.memory.tables[stream.name] for piece in pieces)
        sides.append([page for table in tables for page in (*table, *[0] * (width - len(table)))])
    parts = iter(sent(sides, device))
    ids, first, start, slots, boundary, certain = (next(parts) for _ in range(6))
    shaped = {stream.name: part.view(len(pieces), width) for stream, part in zip(streams, parts, strict=True)}
    return Told(ids, Spans(first, start), Ledger(slots, boundary, certain), shaped, max(lengths))


def sent(sides: Sequence[Sequence[int]], device: torch.device) -> list[Tensor]:
    """Rows of integers as int32 on the device, each aligned to 16 bytes; one copy for all of them."""
    places, flat = list[slice](), list[int]()
    for side in sides:
        places.append(slice(len(flat), len(flat) + len(side)))
        flat += [*side, *[0] * (-len(side) % 4)]
    there = torch.tensor(flat, dtype=torch.int32).to(device, non_blocking=True)
    return [there[place] for place in places]
