"""Faults of the optimised decoder's pools: ownership and leaks (K17), warm starts (K18).

No counterpart here: M18c, because a row of the drafter's context follows from the features at its own position and no
later token; M18d, because only prompts are shared, and no draft is ever part of one.
"""

from collections.abc import Sequence

import torch

from specqual.decoder import engine
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE, Pages, Stream, Table
from specqual.decoder.plan import wanted
from specqual.decoder.prefixes import CHUNK, Ids, Prefixes
from specqual.decoder.propose import Ask
from specqual.decoder.row import Row

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID2, WINDOW2
from .planting import Place
from .rows import Notes, put, remembering, swap

sound_settle, sound_extend, sound_give = Pages.settle, Store.extend, Store.give
sound_release, sound_launch, sound_attach = Engine._release, Engine._launch, Prefixes.attach


@swap("settle", Pages)
def m17a(self: Pages, stream: Stream, table: Table, length: int) -> None:
    """Pages behind the committed length are forgotten, not given back. Needs rejected drafts behind a page's edge."""
    del table[-(-length // PAGE) :]
    sound_settle(self, stream, table, length)


@swap("settle", Pages)
def m17b(self: Pages, stream: Stream, table: Table, length: int) -> None:
    """Pages behind the committed length are given back, and stay in the table, too: soon they have two owners."""
    stale = table[-(-length // PAGE) :]
    sound_settle(self, stream, table, length)
    table.extend(stale)


@remembering
def m17c() -> dict[Place, object]:
    """A page behind a length that fills its pages exactly is given back one step late, and never if there is none."""
    late: dict[int, tuple[Table, list[int]]] = {}

    def settle(self: Pages, stream: Stream, table: Table, length: int) -> None:
        for page in late.pop(id(table), (table, []))[1]:
            self._give(page)
        if length % PAGE == 0:
            late[id(table)] = table, table[length // PAGE :]
            del table[length // PAGE :]
        sound_settle(self, stream, table, length)

    return {(Pages, "settle"): settle}


@swap("extend", Store)
def m17d(self: Store, memory: Memory, streams: Sequence[Stream], end: int) -> None:
    """A window gets pages for the end of a pass only, and earlier rows all land in page 0. Needs a pass longer than
    the window."""
    for stream in streams:
        table = memory.tables[stream.name]
        table.extend([0] * (stream.first(end) // PAGE - len(table)))
    sound_extend(self, memory, streams, end)


@remembering
def m17e() -> dict[Place, object]:
    """The dummy row of an idle place goes through the table of the sample that was there last, whoever owns its pages
    now."""
    last: list[Memory] = []

    def release(self: Engine, row: Row) -> None:
        if row.memory is not None:
            tables = {name: list(table) for name, table in row.memory.tables.items()}
            last[:] = [Memory(tables, None, 0)]
        sound_release(self, row)

    def launch(self: Engine) -> None:
        sound_launch(self)
        for memory in last:
            for stream in self._store.pages.streams.values():
                blank = torch.zeros(1, stream.kv_heads, stream.head_dim)
                if memory.tables[stream.name]:
                    put(self._store, memory, stream, 0, (blank, blank))

    return {(Engine, "_release"): release, (Engine, "_launch"): launch}


@swap("give", Store)
def m17f(self: Store, memory: Memory) -> None:
    """The drafter's pages are not freed with the sample's others."""
    for name, table in memory.tables.items():
        if name.startswith("draft"):
            del table[:]
    sound_give(self, memory)


@swap("extend", Store)
def m17g(self: Store, memory: Memory, streams: Sequence[Stream], end: int) -> None:
    """The drafter's first stream and the target's last lie in the same pages."""
    lender = memory.tables[[name for name in memory.tables if name.startswith("target")][-1]]
    for stream in streams:
        table = memory.tables[stream.name]
        if stream.name == "draft.0":
            table.extend(page for page in lender[len(table) : -(-end // PAGE)] if page)
    sound_extend(self, memory, streams, end)


@swap("attach", Prefixes)
def m18a(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
    """A prefix is restored for the target only; the drafter's rows of it stay unwritten. Shows in acceptance."""
    sound_attach(self, memory, prompt, most)
    for name, stream in self._store.pages.streams.items():
        if name.startswith("draft") and memory.length:
            self._store.pages.release(memory.tables[name])
            self._store.extend(memory, (stream,), memory.length)
            self._store.pages.settle(stream, memory.tables[name], memory.length)


@swap("attach", Prefixes)
def m18b(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
    """The chunks of a prompt are published when it is let in, before they are written: a hit in the same tick, or
    before the prompt is filled, finds nothing in them. Needs a target without recurrent layers."""
    sound_attach(self, memory, prompt, most)
    end = min(most, len(prompt)) // CHUNK * CHUNK
    if end > memory.length:
        self._store.extend(memory, tuple(self._store.pages.streams.values()), end)
        self.publish(memory, prompt, memory.length, end, None)


@remembering
def m18e() -> dict[Place, object]:
    """A request that begins with a hit is never asked for drafts. Output exact, acceptance none."""
    warm = Notes(False)

    def attach(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
        sound_attach(self, memory, prompt, most)
        warm[memory] = memory.length > 0

    def cold(rows: Sequence[Row], *others: object) -> dict[int, Ask]:
        asks = wanted(rows, *others)  # type: ignore[arg-type]
        return {place: ask for place, ask in asks.items() if not warm[ask.memory]}

    return {(Prefixes, "attach"): attach, (engine, "wanted"): cold}


@swap("attach", Prefixes)
def m18f(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
    """A chunk without a state of its own gets that of a longer prefix. Needs a prompt that shares some of another's
    chunks, and not the last."""
    lent = []
    for ids, chunk in self._known.items():
        longer = [
            other.slot for name, other in self._known.items() if name[: len(ids)] == ids and other.slot is not None
        ]
        if chunk.slot is None and longer:
            lent.append((ids, chunk))
            self._known[ids] = type(chunk)(chunk.pages, longer[0])
    sound_attach(self, memory, prompt, most)
    for ids, chunk in lent:
        self._known[ids] = chunk


PLANTED = planted_in(
    "optimised",
    ("RWD-2", WINDOW2, (m17d,)),
    ("RES-1", DFLASH2, (m17a, m17b, m17c, m17f, m17g)),
    ("ISO-2", DFLASH2, (m17e,)),
    ("RES-2", DFLASH2, (m18a, m18b, m18e)),
    ("RES-2", HYBRID2, (m18f,)),
)
