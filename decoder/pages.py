"""The page pool: keys and values of the target and of the drafter's context, one accounting for both."""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from .arithmetic import wide
from .attention import KEYS
from .formats import from_e4m3, to_e4m3
from .view import LANES, View
from .view import PAGE as PAGE


@dataclass(frozen=True, slots=True)
class Stream:
    """One layer's rows over the positions of a sample: `target.3` or `draft.0`.

    Rows are kept in `dtype`, or with `scales`, one for keys and one for values, as FP8 codes. With a window W, the row
    behind `length` sees the last W - 1 rows, and pages in front of those go back.
    """

    name: str
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    window: int | None = None
    scales: tuple[float, float] | None = None

    @property
    def element(self) -> torch.dtype:
        """What the pool holds."""
        return self.dtype if self.scales is None else torch.uint8

    @property
    def block_bytes(self) -> int:
        """Of one head's keys, or values, in one page."""
        return PAGE * self.head_dim * self.element.itemsize

    @property
    def page_bytes(self) -> int:
        return 2 * self.kv_heads * self.block_bytes

    def first(self, length: int) -> int:
        """The first position that the row behind `length` rows sees."""
        return 0 if self.window is None else max(0, length + 1 - self.window)

    def most_pages(self, length: int, span: int) -> int:
        """The most pages held at any time on the way to `length` rows, in spans of at most `span`."""
        pages = -(-length // PAGE)
        return pages if self.window is None else min(pages, -(-(self.window - 1 + span) // PAGE) + 1)


Table: TypeAlias = "array[int]"
"""The page of each 16 positions of one stream, oldest first; 0 where it went back. Page 0 belongs to nobody.

An array, because a device is told of all of them in every round.
"""


def empty_table() -> Table:
    return array("i")


class Blocks(NamedTuple):
    """The pool as one stream sees it: blocks [count, 16, head_dim] of one head's keys or values."""

    data: Tensor
    per_page: int
    sides: Tensor  # [2, kv_heads], the block of each side and head within a page


def page_bytes(streams: Sequence[Stream]) -> int:
    """The size of a page that any of these streams may own, a whole number of blocks for each."""
    step = math.lcm(*(stream.block_bytes for stream in streams))
    return -(-max((stream.page_bytes for stream in streams), default=0) // step) * step


def owners_of(streams: Sequence[Stream]) -> dict[str, str]:
    """By stream, the one whose pages it uses: narrow ones share those of the first of as many as one page has room for.

    Only streams that grow together and see alike share: of one model (`target.3` is one of target), with one window.
    """
    widest, found = max((stream.page_bytes for stream in streams), default=0), dict[str, str]()
    open_groups = dict[tuple[str, int | None, int], list[str]]()
    for stream in streams:
        kind = stream.name.partition(".")[0], stream.window, stream.page_bytes
        group = open_groups.setdefault(kind, [])
        if (len(group) + 1) * stream.page_bytes > widest:
            group = open_groups[kind] = []
        group.append(stream.name)
        found[stream.name] = group[0]
    return found


class Pages:
    """A pool of pages of bytes, each large enough for 16 keys and values of any stream; page 0 stays zero.

    Streams of which several fit into a page share theirs, each in a place of its own there: they have one table.
    """

    def __init__(self, streams: Sequence[Stream], count: int, device: torch.device | str = "cpu") -> None:
        self.streams: Mapping[str, Stream] = {stream.name: stream for stream in streams}
        self.count, self.page_bytes, self.device = count, page_bytes(streams), device
        self.owners = owners_of(streams)
        self.own = tuple(stream for stream in streams if self.owners[stream.name] == stream.name)
        self._data = torch.zeros(count + 1 if streams else 1, self.page_bytes, dtype=torch.uint8, device=device)
        self._blocks = {stream.name: self._blocks_of(stream) for stream in streams}
        self._free = list(range(count, 0, -1))
        self.users = [0] * (count + 1)  # of each page: the samples, and the prefix cache, that hold it
        self.reclaim: Callable[[], None] | None = None  # makes a cache let something go

    @property
    def free(self) -> int:
        return len(self._free)

    def cache(self, stream: Stream) -> Tensor:
        """All pages as one stream sees them, [count + 1, numbers of its part]: keys [kv_heads, 16, d], then values."""
        part = self._data[:, self._place(stream) :]
        return part.view(stream.dtype if stream.scales is None else torch.float8_e4m3fn)

    def _place(self, stream: Stream) -> int:
        """Where in its pages a stream begins, in bytes."""
        group = [name for name, owner in self.owners.items() if owner == self.owners[stream.name]]
        return group.index(stream.name) * stream.page_bytes

    def tables(self) -> dict[str, Table]:
        """Empty tables by stream; streams that share pages share one."""
        own = {stream.name: empty_table() for stream in self.own}
        return {name: own[owner] for name, owner in self.owners.items()}

    def extend(self, table: Table, start: int, end: int) -> None:
        """Make room to write the positions from `start` to `end`: a page there that somebody else holds is copied."""
        for place in range(start // PAGE, len(table)):
            if table[place] and self.users[table[place]] > 1:
                page = self._take()
                self._data[page] = self._data[table[place]]
                self._give(table[place])
                table[place] = page
        while len(table) * PAGE < end:
            table.append(self._take())

    def _take(self) -> int:
        while not self._free and self.reclaim is not None:
            self.reclaim()
        page = self._free.pop()
        self.users[page] = 1
        return page

    def share(self, pages: Sequence[int]) -> None:
        """Let one more hold these pages."""
        for page in pages:
            self.users[page] += bool(page)

    def settle(self, stream: Stream, table: Table, length: int) -> None:
        """Give back the pages behind `length` rows, and those in front of what the next row sees."""
        while len(table) * PAGE >= length + PAGE:
            self._give(table.pop())
        for place in range(stream.first(length) // PAGE):
            self._give(table[place])
            table[place] = 0

    def release(self, table: Table) -> None:
        """Let every page go; what nobody else holds is free."""
        while table:
            self._give(table.pop())

    def _give(self, page: int) -> None:
        self.users[page] -= bool(page)
        if page and not self.users[page]:
            self._free.append(page)

    def _blocks_of(self, stream: Stream) -> Blocks:
        data = self._data.view(stream.element).view(-1, PAGE, stream.head_dim)
        begin = self._place(stream) // stream.block_bytes
        sides = torch.arange(begin, begin + 2 * stream.kv_heads).view(2, stream.kv_heads)
        return Blocks(data, self.page_bytes // stream.block_bytes, sides)

    def find(self, tables: Sequence[Table], view: View) -> Tensor:
        """The pages [n, view.pages] that a view shows, of tables in the order of the samples; 0 where there is none."""
        shown = zip(view.samples, view.firsts, view.lasts, strict=True)
        found = [tables[i][first:last] for i, first, last in shown]
        return torch.tensor([[*pages, *[0] * (view.pages - len(pages))] for pages in found])

    def write(self, stream: Stream, pages: Tensor, view: View, key: Tensor, value: Tensor) -> None:
        """Store the new rows of a view, the first ones of key and value [at least R, kv_heads, d]."""
        blocks, count = self._blocks[stream.name], len(view.places)
        at = (pages.flatten()[view.places] * blocks.per_page)[:, None, None] + blocks.sides
        at = at * PAGE + view.offsets[:, None, None]  # [R, 2, kv_heads]
        if stream.scales is not None:
            key, value = (to_e4m3(side, scale) for side, scale in zip((key, value), stream.scales, strict=True))
        rows = torch.stack([key[:count], value[:count]], dim=1)
        blocks.data.view(-1, stream.head_dim).index_copy_(0, at.flatten(), rows.flatten(0, 2))

    def gather(self, stream: Stream, pages: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Keys and values [n, pieces, kv_heads, 64, d] that a view shows, wide.

        Positions outside of what is to be read are zero, whatever a page holds.
        """
        blocks, count = self._blocks[stream.name], len(pages)
        at = pages.view(1, -1, 1, LANES) * blocks.per_page + blocks.sides[:, None, :, None]
        rows = blocks.data.index_select(0, at.flatten()).view(2, -1, stream.kv_heads, KEYS, stream.head_dim)
        if len(view.unread[0]):
            rows[:, view.unread[0], :, view.unread[1]] = 0
        key, value = self._decoded(stream, rows)
        shape = (count, -1, stream.kv_heads, KEYS, stream.head_dim)
        return wide(key).view(shape), wide(value).view(shape)

    def read(self, stream: Stream, table: Table, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values [end - first, kv_heads, d] of one sample, in its stream's dtype."""
        blocks, low = self._blocks[stream.name], first // PAGE
        at = (
            torch.tensor(table[low : -(-end // PAGE)], dtype=torch.long)[:, None, None] * blocks.per_page + blocks.sides
        )
        rows = blocks.data[at].permute(1, 0, 3, 2, 4).flatten(1, 2)[:, first - low * PAGE : end - low * PAGE]
        return self._decoded(stream, rows)

    def _decoded(self, stream: Stream, rows: Tensor) -> tuple[Tensor, Tensor]:
        key, value = rows
        if stream.scales is not None:
            key, value = (
                from_e4m3(side, scale, stream.dtype) for side, scale in zip((key, value), stream.scales, strict=True)
            )
        return key, value
