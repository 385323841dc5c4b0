"""The page pool: keys and values of the target and of the drafter's context, one accounting for both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import KEYS

PAGE = 16  # positions


@dataclass(frozen=True, slots=True)
class Stream:
    """One layer's rows over the positions of a sample: `target.3` or `draft.0`.

    With a window W, the row behind `length` sees the last W - 1 rows, and pages in front of those go back.
    """

    name: str
    kv_heads: int
    head_dim: int
    window: int | None = None

    @property
    def width(self) -> int:
        return self.kv_heads * self.head_dim

    def first(self, length: int) -> int:
        """The first position that the row behind `length` rows sees."""
        return 0 if self.window is None else max(0, length + 1 - self.window)

    def most_pages(self, length: int, span: int) -> int:
        """The most pages held at any time on the way to `length` rows, in spans of at most `span`."""
        pages = -(-length // PAGE)
        return pages if self.window is None else min(pages, -(-(self.window - 1 + span) // PAGE) + 1)


Table = list[int]
"""The page of each 16 positions of one stream, oldest first; 0 where it went back. Page 0 belongs to nobody."""


class Pages:
    """A pool of pages [2, 16, width] (key, value), width that of the widest stream; page 0 stays empty."""

    def __init__(self, streams: Sequence[Stream], count: int, dtype: torch.dtype) -> None:
        self.streams: Mapping[str, Stream] = {stream.name: stream for stream in streams}
        self.count, self.dtype = count, dtype
        width = max((stream.width for stream in streams), default=0)
        self._data = torch.zeros(count + 1 if width else 1, 2, PAGE, width, dtype=dtype)
        self._free = list(range(count, 0, -1))
        self.users = [0] * (count + 1)  # of each page: the samples, and the prefix cache, that hold it
        self.reclaim: Callable[[], None] | None = None  # makes a cache let something go

    @property
    def free(self) -> int:
        return len(self._free)

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

    def write(self, stream: Stream, table: Table, start: int, key: Tensor, value: Tensor) -> None:
        """Store rows [n, kv_heads, d] at the positions from `start` on, rounded to the pool's dtype."""
        positions = torch.arange(start, start + len(key))
        pages = torch.tensor(table)[positions // PAGE]
        for side, rows in enumerate((key, value)):
            self._data[pages, side, positions % PAGE, : stream.width] = rows.flatten(1).to(self._data.dtype)

    def read(self, stream: Stream, table: Table, first: int, end: int) -> tuple[int, Tensor, Tensor]:
        """Keys and values [S, kv_heads, d] of the positions from `first` to `end`, and the position of the first row.

        They begin and end at multiples of 64; rows outside of what was asked for are zero, whatever a page holds.
        """
        start, stop = first // KEYS * KEYS, -(-end // KEYS) * KEYS
        pages = table[start // PAGE : stop // PAGE]
        rows = self._data[pages + [0] * ((stop - start) // PAGE - len(pages)), :, :, : stream.width]  # a copy
        rows = rows.transpose(0, 1).reshape(2, stop - start, stream.kv_heads, stream.head_dim)
        rows[:, : first - start] = 0
        rows[:, end - start :] = 0
        return start, rows[0], rows[1]
