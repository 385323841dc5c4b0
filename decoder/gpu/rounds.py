"""What a pass is told from round to round, carried to the device in one copy."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..memory import Memory
from ..pages import Stream
from .carry import pinned
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


class Frame(NamedTuple):
    """How large a pass is: everything about it that launches depend on."""

    samples: int
    most: int  # rows of one sample
    rows: int  # of all samples
    pages: int  # of one sample in one stream


class Told(NamedTuple):
    """The same of all samples of a pass, as the kernels read it."""

    ids: Tensor  # [R] int32
    spans: Spans
    ledger: Ledger
    tables: dict[str, Tensor]  # by stream, [B, width] int32
    most: int  # rows of one sample, at most


def frame_of(pieces: Sequence[Piece], streams: Sequence[Stream]) -> Frame:
    """The frame that holds these pieces and no more."""
    lengths = [len(piece.ids) for piece in pieces]
    pages = max((len(piece.memory.tables[stream.name]) for piece in pieces for stream in streams), default=0)
    return Frame(len(pieces), max(lengths), sum(lengths), pages)


def places_of(frame: Frame, streams: int) -> list[slice]:
    """Where ids, first, start, slots, boundary, certain and the tables of so many streams lie in one row of integers,
    each aligned to 16 bytes."""
    sizes = [frame.rows, frame.samples + 1, *[frame.samples] * 4, *[frame.samples * frame.pages] * streams]
    starts = accumulate((-(-size // 4) * 4 for size in sizes), initial=0)
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]


def packed(pieces: Sequence[Piece], streams: Sequence[Stream], frame: Frame) -> Tensor:
    """Pieces behind each other with the page tables of these streams, one row of int32 on the host.

    Samples that only fill up the frame have no rows, and rows that do belong to no sample.
    """
    places = places_of(frame, len(streams))
    flat = np.zeros(-(-places[-1].stop // 4) * 4, dtype=np.int32)
    ids, first, start, slots, boundary, certain, *tables = (flat[place] for place in places)
    end = 0
    for place, piece in enumerate(pieces):
        ids[end : end + len(piece.ids)] = piece.ids
        first[place], end = end, end + len(piece.ids)
        start[place], slots[place] = piece.start, piece.memory.slot or 0
        boundary[place], certain[place] = piece.boundary, piece.certain
        for stream, table in zip(streams, tables, strict=True):
            known = piece.memory.tables[stream.name]
            table[place * frame.pages :][: len(known)] = known
    first[len(pieces) :] = end
    return torch.from_numpy(flat)


def read(flat: Tensor, streams: Sequence[Stream], frame: Frame) -> Told:
    """What was packed, where it lies now."""
    ids, first, start, slots, boundary, certain, *tables = (flat[place] for place in places_of(frame, len(streams)))
    shaped = (table.view(frame.samples, frame.pages) for table in tables)
    named = dict(zip((stream.name for stream in streams), shaped, strict=True))
    return Told(ids, Spans(first, start), Ledger(slots, boundary, certain), named, frame.most)


def told(pieces: Sequence[Piece], streams: Sequence[Stream], device: torch.device) -> Told:
    """The same, on the device."""
    frame = frame_of(pieces, streams)
    return read(pinned(packed(pieces, streams, frame), device).to(device, non_blocking=True), streams, frame)
