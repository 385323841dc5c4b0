"""Faults of what is kept between rounds: lengths, positions, windows, pages, warm starts, states (K13, K16 to K19)."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specqual.contract import Event
from specqual.decoder import prefixes, target
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE, Pages, Stream, Table
from specqual.decoder.prefixes import CHUNK, Ids, Prefixes
from specqual.decoder.replay import Replay, replay_of
from specqual.decoder.slots import Slots
from specqual.decoder.span import Span
from specqual.decoder.target import Layout, Transformer
from specqual.decoder.view import View

from ..planting import Place
from ..rows import Notes, remembering, swap
from .parts import DENSE, HYBRID, WINDOW, Pair

ATTACH, COMMIT, EXTEND, LAND = Prefixes.attach, Store.commit, Pages.extend, Engine._land
LAYOUT, SETTLE, TAKE, WRITE = Transformer._layout, Pages.settle, Pages._take, Pages.write
DRAFTS = 4  # of a whole block


@remembering
def f13a() -> dict[Place, Any]:
    """A page of the target whose last row was written counts as full and is not written again: shows where a draft that
    stood in the last row of a page was rejected, as its keys and values under the token that came instead."""
    full: WeakKeyDictionary[Pages, set[int]] = WeakKeyDictionary()

    def take(self: Pages) -> int:
        page = TAKE(self)
        full.setdefault(self, set()).discard(page)
        return page

    def write(self: Pages, stream: Stream, pages: Tensor, view: View, key: Tensor, value: Tensor) -> None:
        if not stream.name.startswith("target"):
            return WRITE(self, stream, pages, view, key, value)
        sealed, count = full.setdefault(self, set()), len(view.places)
        homes, last = pages.flatten()[view.places].tolist(), (view.offsets == PAGE - 1).tolist()
        open_ = torch.tensor([not (end and page in sealed) for page, end in zip(homes, last, strict=True)])
        sealed.update(page for page, end in zip(homes, last, strict=True) if end)
        some = replace(view, places=view.places[open_], offsets=view.offsets[open_])
        return WRITE(self, stream, pages, some, key[:count][open_], value[:count][open_])

    return {(Pages, "_take"): take, (Pages, "write"): write}


@swap("settle", Pages)
def f13b(self: Pages, stream: Stream, table: Table, length: int) -> None:
    """A page that holds one committed row counts as one behind the length and goes back: shows where a commit ends
    right behind a page's first row."""
    SETTLE(self, stream, table, length)
    if length > PAGE and len(table) * PAGE == length + PAGE - 1:
        self._give(table.pop())


@remembering
def f13c() -> dict[Place, Any]:
    """A round without drafts takes its position from a counter that the last round's rejected drafts have moved, too:
    shows where drafting pauses behind a partial acceptance, as at the last token of a budget."""
    rejected = Notes[int](0)

    def land(self: Engine) -> list[Event]:
        flights, events = self._flights, LAND(self)
        for flight in flights:
            if flight.span.judged and flight.row.rounds:
                rejected[flight.span.memory] = len(flight.proposal.tokens) - flight.row.rounds[-1].accepted
        return events

    def layout(self: Transformer, spans: Sequence[Span], places: Sequence[slice], store: Store, least: int) -> Layout:
        found = LAYOUT(self, spans, places, store, least)
        positions = found.rows.positions.clone()
        for span, place in zip(spans, places, strict=True):
            if not span.certain and span.judged == 1:
                positions[place] = min(span.start + rejected[span.memory], self.max_context - 1)
        cos, sin = self.turns.at(self.tiling.padded(positions, least), self.dtype)
        return replace(found, cos=cos, sin=sin)

    return {(Engine, "_land"): land, (Transformer, "_layout"): layout}


@swap("settle", Pages)
def f16a(self: Pages, stream: Stream, table: Table, length: int) -> None:
    """A windowed layer of the target gives pages back as if the next round's drafts were committed already: shows where
    the window's first rows are the last ones of a page."""
    SETTLE(self, stream, table, length)
    if stream.window is not None and stream.name.startswith("target"):
        for place in range(stream.first(length + DRAFTS) // PAGE):
            self._give(table[place])
            table[place] = 0


@swap("extend", Pages)
def f17a(self: Pages, table: Table, start: int, end: int) -> None:
    """Who copies a shared page before writing stays among the users of the old one: shows with n > 1 as pages that
    never come back."""
    left = [page for page in table[start // PAGE :] if page and self.users[page] > 1]
    EXTEND(self, table, start, end)
    self.share(left)


@swap("extend", Store)
def f17b(self: Store, memory: Memory, streams: Sequence[Stream], end: int) -> None:
    """The drafter's shared pages are written without being copied: shows with n > 1, where samples write their context
    over each other's, as worse drafts."""
    for stream in streams:
        table = memory.tables[stream.name]
        if stream.name.startswith("target"):
            self.pages.extend(table, memory.length, end)
        while len(table) * PAGE < end:
            table.append(self.pages._take())


@swap("attach", Prefixes)
def f17c(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
    """A hit takes the drafter's pages without becoming one of their users: shows once a sample with a hit has ended, as
    cached pages that are free and are filled by others."""
    ATTACH(self, memory, prompt, most)
    for name, table in memory.tables.items():
        for page in table if name.startswith("draft") else ():
            self._store.pages.users[page] -= bool(page)


@swap("attach", Prefixes)
def f18a(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
    """A hit brings the target's rows and none of the drafter's: shows as worse drafts behind a warm start."""
    ATTACH(self, memory, prompt, most)
    for name, table in memory.tables.items():
        if name.startswith("draft"):
            held = list(table)
            self._store.pages.release(table)
            table.extend([0] * len(held))


class ByContent(OrderedDict[Ids, Any]):
    """Chunks known by their own tokens, whatever stands in front of them."""

    def __setitem__(self, ids: Ids, value: Any) -> None:
        super().__setitem__(ids[-CHUNK:], value)

    def __contains__(self, ids: object) -> bool:
        return isinstance(ids, tuple) and super().__contains__(ids[-CHUNK:])

    def get(self, ids: Ids, default: Any = None) -> Any:
        return super().get(ids[-CHUNK:], default)

    def pop(self, ids: Ids) -> Any:  # type: ignore[override]
        return super().pop(ids[-CHUNK:])

    def move_to_end(self, ids: Ids, last: bool = True) -> None:
        super().move_to_end(ids[-CHUNK:], last)


@remembering
def f18b() -> dict[Place, Any]:
    """A cached chunk is known by its own tokens and not by those in front of it: shows where prompts that begin
    differently hold the same 64 tokens behind a known first chunk."""
    return {(prefixes, "OrderedDict"): ByContent}


@swap("replay_of", target)
def f18c(spans: Sequence[Span], places: Sequence[slice], kernel: int, longest: int, padded: int) -> Replay:
    """The state behind a cached chunk is kept with the convolution's history from the end of the pass: shows on a
    hybrid target at a warm start, in the first tokens behind the hit."""
    found = replay_of(spans, places, kernel, longest, padded)
    lengths = [span.memory.kept + len(span.new) for span in spans]
    tails, stop = found.tails.clone(), 0
    for i in sorted(range(len(spans)), key=lambda i: -lengths[i]):
        if spans[i].mark is not None:
            tails[stop + 1] = tails[stop]
        stop += 1 + (spans[i].mark is not None)
    return replace(found, tails=tails)


@swap("take", Slots)
def f19a(self: Slots) -> int | None:
    """A slot that is taken again begins with an empty state and with the last sample's convolution history: shows in a
    later request on a hybrid target, from its first tokens on."""
    if not self.layers:
        return None
    slot = self._free.pop()
    self._state[:, slot] = 0
    return slot


@swap("copy", Slots)
def f19b(self: Slots, source: int, slot: int) -> None:
    """A slot is copied without its log: shows with n > 1 on a hybrid target, where all samples but the first miss the
    last prompt token, which stood there."""
    for part in (self._state, self._conv):
        part[:, slot] = part[:, source]


@swap("commit", Store)
def f19c(self: Store, memory: Memory, length: int, kept: int) -> None:
    """At most K rows of a log are folded, though anchor and drafts are K + 1: shows on a hybrid target after full
    acceptance of a whole block, whose last draft the state never sees."""
    COMMIT(self, memory, length, min(kept, self.slots.longest - 1))


ROWS: tuple[Pair, ...] = (
    (f13a, "K13", *DENSE),
    (f13b, "K13", *HYBRID),
    (f13c, "K13", *WINDOW),
    (f16a, "K16", *WINDOW),
    (f17a, "K17", *DENSE),
    (f17b, "K17", *WINDOW),
    (f17c, "K17", *DENSE),
    (f18a, "K18", *DENSE),
    (f18b, "K18", *DENSE),
    (f18c, "K18", *HYBRID),
    (f19a, "K19", *HYBRID),
    (f19b, "K19", *HYBRID),
    (f19c, "K19", *HYBRID),
)
