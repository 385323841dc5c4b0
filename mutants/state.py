"""Faults of the optimised decoder: KV and positions after a partial acceptance (K13), ragged batches (K14), windows and
rings (K16).

Here a token's row lies at its position, whatever was accepted, and one length cuts every stream of a sample; so a
length that is wrong as such cannot be silent, and these faults are wrong about the rows instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specqual.decoder import target
from specqual.decoder.arithmetic import Turns
from specqual.decoder.block import BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE, Pages, Stream, Table
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer
from specqual.decoder.view import Rows, View, view_of

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID2, WINDOW2
from .planting import Place
from .recurrent import replaying
from .rows import Notes, put, remembering, rows, swap

sound_forward, sound_ingest, sound_launch = Transformer.forward, BlockDrafter.ingest, Engine._launch
sound_settle = Pages.settle

Keep = Callable[[Tensor, Tensor, int, Span, Stream], Tensor]
"""New rows [n, ...] of a span, the rows that lay in their places, and how many of those a rejected draft left: to the
rows that stay."""


def keeping(keep: Keep) -> dict[Place, object]:
    """A forward pass behind which the pool holds something else than the rows of the pass."""
    ends = Notes(0)

    def forward(self: Transformer, spans: Sequence[Span], store: Store, *others: int) -> Pass:
        before = [[rows(store, s.memory, stream, s.start, s.end) for stream in self.streams] for s in spans]
        found = sound_forward(self, spans, store, *others)
        for span, stale in zip(spans, before, strict=True):
            rejected = max(0, min(ends[span.memory], span.end) - span.start)
            for stream, old in zip(self.streams, stale, strict=True):
                new = rows(store, span.memory, stream, span.start, span.end)
                sides = [keep(*pair, rejected, span, stream) for pair in zip(new, old, strict=True)]
                put(store, span.memory, stream, span.start, sides)
            ends[span.memory] = span.end
        return found

    return {(Transformer, "forward"): forward}


def _behind(new: Tensor, old: Tensor, rejected: int, span: Span, stream: Stream) -> Tensor:
    return torch.cat([old[:rejected], new[rejected:]])


def _late(new: Tensor, old: Tensor, rejected: int, span: Span, stream: Stream) -> Tensor:
    return torch.cat([old[:1], new[:-1]]) if rejected else new


@remembering
def m13a() -> dict[Place, object]:
    """All K + 1 rows of a round are kept: where a rejected draft left a row, no other is written. Shows from the second
    round after a rejection on."""
    return keeping(_behind)


@swap("settle", Pages)
def m13b(self: Pages, stream: Stream, table: Table, length: int) -> None:
    """One row too many is cropped, and its page goes back. Shows where a commit ends on the first row of a page."""
    sound_settle(self, stream, table, length)
    if length % PAGE == 1:
        self._give(table[-1])
        table[-1] = 0


@dataclass(frozen=True, slots=True)
class Shifted:
    """Turns that believe other positions than they are asked for."""

    turns: Turns
    positions: Tensor

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.turns.at(self.positions, dtype)


def misplaced(
    self: BlockDrafter,
    memories: Sequence[Memory],
    starts: Sequence[int],
    features: Sequence[Tensor],
    store: Store,
    shifts: Sequence[int],
) -> None:
    """Take in features at their places, but turned as if they stood so many positions further on."""
    parts = [
        torch.arange(start, start + len(new)) + by for start, new, by in zip(starts, features, shifts, strict=True)
    ]
    turns = Shifted(self.turns, torch.cat(parts).clamp(min=0, max=len(self.turns.cos) - 1))
    sound_ingest(replace(self, turns=turns), memories, starts, features, store)  # type: ignore[arg-type]


def room(self: BlockDrafter, memories, starts, features, store: Store) -> None:
    """Make the pages for rows that will not all be written."""
    for memory, start, new in zip(memories, starts, features, strict=True):
        store.extend(memory, self.streams, start + len(new))


def in_rounds(starts: Sequence[int], features: Sequence[Tensor], store: Store) -> list[bool]:
    """Which features seem to be those of one round's tokens."""
    return [start > 0 and len(new) <= store.slots.longest for start, new in zip(starts, features, strict=True)]


@remembering
def m13c() -> dict[Place, object]:
    """The drafter's positions move on by one a round, whatever was accepted. Shows after the first acceptance."""
    behind = Notes(0)

    def ingest(self: BlockDrafter, memories, starts, features, store: Store) -> None:
        misplaced(self, memories, starts, features, store, [-behind[memory] for memory in memories])
        for memory, new, turn in zip(memories, features, in_rounds(starts, features, store), strict=True):
            behind[memory] += (len(new) - 1) * turn

    return {(BlockDrafter, "ingest"): ingest}


@swap("ingest", BlockDrafter)
def m13d(self: BlockDrafter, memories, starts, features, store: Store) -> None:
    """After a round that accepted nothing the drafter's place is zero again. Shows in draft rows and acceptance."""
    room(self, memories, starts, features, store)
    starts = [start if len(new) > 1 else 0 for start, new in zip(starts, features, strict=True)]
    sound_ingest(self, memories, starts, features, store)


def eagerly(self: Engine) -> None:
    """Launch, and let the drafter take in the rows of all drafts before they are judged."""
    sound_launch(self)
    for flight in self._flights:
        if flight.span.judged and self._proposer is not None:
            unsettled = flight.features[flight.span.certain :]
            self._proposer.ingest([flight.span.memory], [flight.span.memory.length], [unsettled], self._store)


@remembering
def m13e() -> dict[Place, object]:
    """The target's rows are cropped, the drafter's are not: what it has it does not take in again, rejected or not.
    Output exact, draft rows and acceptance wrong after a rejection."""
    ends = Notes(0)

    def ingest(self: BlockDrafter, memories, starts, features, store: Store) -> None:
        for memory, start, new in zip(memories, starts, features, strict=True):
            known = max(0, ends[memory] - start)
            if known < len(new):
                sound_ingest(self, [memory], [start + known], [new[known:]], store)
                ends[memory] = start + len(new)

    return {(Engine, "_launch"): eagerly, (BlockDrafter, "ingest"): ingest}


@remembering
def m13f() -> dict[Place, object]:
    """Lengths are right, but after a rejection the write pointer is moved back by one row too few."""
    return keeping(_late)


@remembering
def m13g() -> dict[Place, object]:
    """Only four rows of a drafted span reach the cache. Exact for K up to 3, and where the last is rejected."""
    return keeping(lambda new, old, _, span, stream: torch.cat([new[:4], old[4:]]) if span.judged > 4 else new)


@swap("replay_of", target)
def m14a(spans: Sequence[Span], *places: object) -> object:
    """All samples of a batch keep as many tokens as the one that accepted most. Exact alone and in lockstep."""
    most = max(span.memory.kept for span in spans)
    return replaying(spans, places, lambda span: most if span.memory.kept else 0)


@swap("ingest", BlockDrafter)
def m14b(self: BlockDrafter, memories, starts, features, store: Store) -> None:
    """All samples of a batch are cut to the one that accepted least, and the drafter loses tokens of the others."""
    room(self, memories, starts, features, store)
    if all(in_rounds(starts, features, store)):
        least = min(len(new) for new in features)
        features = [new[:least] for new in features]
    sound_ingest(self, memories, starts, features, store)


@remembering
def m14c() -> dict[Place, object]:
    """After rounds of unequal length the drafter's keys stand in the right places, but their positions keep a hole."""
    holes = Notes(0)

    def ingest(self: BlockDrafter, memories, starts, features, store: Store) -> None:
        misplaced(self, memories, starts, features, store, [holes[memory] for memory in memories])
        turns, most = in_rounds(starts, features, store), max(len(new) for new in features)
        for memory, new, turn in zip(memories, features, turns, strict=True):
            holes[memory] += (most - len(new)) * (turn and all(turns))

    return {(BlockDrafter, "ingest"): ingest}


def _wrapped(keep: Keep) -> Keep:
    def only(new: Tensor, old: Tensor, rejected: int, span: Span, stream: Stream) -> Tensor:
        past = stream.window is not None and span.start > stream.window
        return keep(new, old, rejected if past else 0, span, stream)

    return only


@remembering
def m16a() -> dict[Place, object]:
    """A stream that has passed its window is not cropped. Needs a rejection behind the window."""
    return keeping(_wrapped(_behind))


@remembering
def m16b() -> dict[Place, object]:
    """Behind the window a rejection moves the length back, but not the cursor where the next row goes."""
    return keeping(_wrapped(_late))


@swap("view_of", target)
def m16c(rows: Rows, firsts: Sequence[int], ends: Sequence[int], window: int | None) -> View:
    """The keys of a window are counted from the end of the span, so its first queries miss the oldest ones."""
    if window is not None:
        firsts = [min(max(f, end - window), f + window - 1) for f, end in zip(firsts, ends, strict=True)]
    return view_of(rows, firsts, ends, window)


@swap("_launch", Engine)
def m16d(self: Engine) -> None:
    """Windows move on with the drafts, before they are judged: a rejection leaves the ring short of its oldest page."""
    sound_launch(self)
    for flight in self._flights:
        for name, stream in self._store.pages.streams.items():
            if stream.window is not None and flight.proposal.tokens:
                self._store.pages.settle(stream, flight.span.memory.tables[name], flight.span.end)


PLANTED = planted_in(
    "optimised",
    ("RWD-1", DFLASH2, (m13a, m13b, m13c, m13d, m13e, m13f, m13g, m14b, m14c)),
    ("RWD-1", WINDOW2, (m16a, m16b, m16c, m16d)),
    ("REC-1", HYBRID2, (m14a,)),
)
