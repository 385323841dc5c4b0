"""What one sample owns in the pools, and the pools together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .pages import PAGE, Pages, Stream, Table
from .slots import Slots


@dataclass(slots=True)
class Memory:
    """One sample's page tables, by stream, and slot; streams that share pages have one table. `length` counts committed
    tokens with a target state; whatever lies behind it in a page is speculative, and nothing but a larger length makes
    it visible.

    `kept` counts the tokens of the slot's log that are committed: the slot itself stands at length - kept. `marked` is
    a slot for the state that a pass under way leaves to the prefix cache: until it is there, it belongs to the sample.
    """

    tables: Mapping[str, Table]
    slot: int | None
    reserved: int
    length: int = 0
    kept: int = 0
    marked: int | None = None


@dataclass(slots=True)
class Store:
    """The pools, and the promise that a sample which was let in never runs out of them."""

    pages: Pages
    slots: Slots
    samples: int  # at most
    open: list[Memory] = field(default_factory=list)

    def most_pages(self, length: int, span: int) -> int:
        """What a sample of `length` tokens may need at any one time."""
        return sum(stream.most_pages(length, span) for stream in self.pages.own)

    @property
    def promised(self) -> int:
        """The most pages that the samples which are in will ever hold together.

        A page that nobody will write or give back before its sample ends, because it lies in front of a length and in
        no window, counts once, however many hold it.
        """
        lasting = [stream.name for stream in self.pages.own if stream.window is None]
        held = Counter(
            page for memory in self.open for name in lasting for page in memory.tables[name][: memory.length // PAGE]
        )
        return sum(memory.reserved for memory in self.open) - sum(count - 1 for count in held.values())

    def take(self, most: int) -> Memory | None:
        """Let a sample in, or None if what was promised to the others leaves too little."""
        if len(self.open) >= self.samples or self.promised + most > self.pages.count:
            return None
        memory = Memory(self.pages.tables(), self.slots.take(), most)
        self.open.append(memory)
        return memory

    def fork(self, source: Memory, memory: Memory) -> None:
        """Let an empty memory begin where another one stands: its pages are shared until one of the two writes."""
        for stream in self.pages.own:
            self.pages.share(source.tables[stream.name])
            memory.tables[stream.name].extend(source.tables[stream.name])
        if source.slot is not None and memory.slot is not None:
            self.slots.copy(source.slot, memory.slot)
        memory.length, memory.kept = source.length, source.kept

    def give(self, memory: Memory) -> None:
        """Take everything back."""
        self.open = [other for other in self.open if other is not memory]
        for stream in self.pages.own:
            self.pages.release(memory.tables[stream.name])
        self.slots.give(memory.slot)
        self.slots.give(memory.marked)

    def extend(self, memory: Memory, streams: Sequence[Stream], end: int) -> None:
        """Make room in these streams to write the positions behind the length and before `end`."""
        for stream in streams:
            self.pages.extend(memory.tables[stream.name], memory.length, end)

    def commit(self, memory: Memory, length: int, kept: int) -> None:
        """Move the length; `kept` tokens of the slot's log are now committed. Pages behind the length go back."""
        memory.length, memory.kept = length, kept
        for stream in self.pages.own:
            self.pages.settle(stream, memory.tables[stream.name], length)
