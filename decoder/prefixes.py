"""The prefix cache: whole fixed chunks that lie inside a prompt, with every layer's rows and the state behind them.

A chunk is known by all tokens up to its end, and by nothing else: every page of this decoder is computed by the same
kernels to the same bits, in one piece or in many. Pages of generated tokens serve their own request only. A hit begins
behind a whole chunk, on pages of its own, so a shared page is never written.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from .attention import KEYS
from .memory import Memory, Store
from .pages import PAGE, Table

CHUNK = KEYS  # tokens
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The pages of one chunk by the stream that owns them, and the slot of the recurrent state behind it, if any."""

    pages: dict[str, Table]
    slot: int | None


class Prefixes:
    """Keeps at most `most` chunks, least recently used last, and gives pages back whenever the pool asks for them."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._known: OrderedDict[Ids, Chunk] = OrderedDict()
        store.pages.reclaim = self._evict

    @property
    def idle_pages(self) -> int:
        """Pages that nobody but this cache holds."""
        users = self._store.pages.users
        return sum(
            users[page] == 1 for chunk in self._known.values() for table in chunk.pages.values() for page in table
        )

    @property
    def idle_slots(self) -> int:
        return sum(chunk.slot is not None for chunk in self._known.values())

    def mark(self, memory: Memory, prompt: Ids, start: int, end: int) -> tuple[int, int] | None:
        """Where between `start` and `end` a recurrent state is worth keeping, as (position, slot): at the prompt's last
        whole chunk. None where it is elsewhere, is known, or there is no state or no room. A pass that came to nothing
        has left its slot in the memory."""
        place = (len(prompt) - 1) // CHUNK * CHUNK
        known = self._known.get(prompt[:place])
        if not self._most or not start < place <= end or (known is not None and known.slot is not None):
            return None
        slots, promised = self._store.slots, self._store.samples - len(self._store.open)
        holders = [ids for ids, chunk in self._known.items() if chunk.slot is not None]
        while memory.marked is None and slots.free <= promised and holders:
            self._drop(holders.pop(0))
        if memory.marked is None and slots.free > promised:
            memory.marked = slots.take()
        return None if memory.marked is None else (place, memory.marked)

    def publish(self, memory: Memory, prompt: Ids, start: int, end: int, mark: tuple[int, int] | None) -> None:
        """Keep the whole chunks of a prompt that end in (start, end]; every stream's rows of them are in place."""
        used = False
        for stop in range((start // CHUNK + 1) * CHUNK, min(end, len(prompt)) + 1, CHUNK):
            places = slice((stop - CHUNK) // PAGE, stop // PAGE)
            pages = {stream.name: memory.tables[stream.name][places] for stream in self._store.pages.own}
            slot = mark[1] if mark is not None and mark[0] == stop else None
            known = self._known.get(prompt[:stop])
            if not self._most or (known is not None and slot is None) or not all(map(all, pages.values())):
                continue
            if known is not None:
                self._drop(prompt[:stop])
            for table in pages.values():
                self._store.pages.share(table)
            self._known[prompt[:stop]] = Chunk(pages, slot)
            used |= slot is not None
            self._touch(prompt[:stop])
            while len(self._known) > self._most:
                self._evict()
        if mark is not None:
            memory.marked = None
            self._store.slots.give(None if used else mark[1])

    def attach(self, memory: Memory, prompt: Ids, most: int) -> None:
        """Let an empty memory begin behind the longest known prefix of at most `most` tokens."""
        chain, found = list[Chunk](), list[Chunk]()
        for stop in range(CHUNK, min(most, len(prompt)) + 1, CHUNK):
            chunk = self._known.get(prompt[:stop])
            if chunk is None:
                break
            chain.append(chunk)
            if memory.slot is None or chunk.slot is not None:
                found = list(chain)
        if not found:
            return
        for chunk in found:
            for name, pages in chunk.pages.items():
                self._store.pages.share(pages)
                memory.tables[name].extend(pages)
        if memory.slot is not None and found[-1].slot is not None:
            self._store.slots.copy(found[-1].slot, memory.slot)
        self._store.commit(memory, len(found) * CHUNK, 0)
        self._touch(prompt[: len(found) * CHUNK])

    def close(self) -> None:
        """Give everything back and leave the pool, which would else be freed by the cyclic collector alone."""
        while self._known:
            self._evict()
        self._store.pages.reclaim = None

    def _touch(self, ids: Sequence[int]) -> None:
        """Make a chain the most recent, its beginning last of all: without it the rest is of no use."""
        for stop in range(len(ids), 0, -CHUNK):
            if tuple(ids[:stop]) in self._known:
                self._known.move_to_end(tuple(ids[:stop]))

    def _evict(self) -> None:
        self._drop(next(iter(self._known)))

    def _drop(self, ids: Ids) -> None:
        chunk = self._known.pop(ids)
        for pages in chunk.pages.values():
            self._store.pages.release(pages[:])
        self._store.slots.give(chunk.slot)
