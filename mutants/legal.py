"""Controls in the optimised decoder: what looks odd in its caches, and is right."""

import torch

from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE
from specqual.decoder.prefixes import CHUNK, Ids, Prefixes

from .mutant import Control
from .pairs import DFLASH2, HYBRID2, WINDOW2
from .rows import put, swap

sound_attach, sound_commit = Prefixes.attach, Store.commit


@swap("attach", Prefixes)
def n6(self: Prefixes, memory: Memory, prompt: Ids, most: int) -> None:
    """The last cached chunk of every hit is dropped and computed again: slower, same output."""
    known = 0
    while known + CHUNK <= min(most, len(prompt)) and prompt[: known + CHUNK] in self._known:
        known += CHUNK
    sound_attach(self, memory, prompt, known - CHUNK)


@swap("commit", Store)
def n8(self: Store, memory: Memory, length: int, kept: int) -> None:
    """Behind the valid length of every page table and log lies NaN."""
    sound_commit(self, memory, length, kept)
    for name, stream in self.pages.streams.items():
        rows = torch.full((len(memory.tables[name]) * PAGE - length, stream.kv_heads, stream.head_dim), torch.nan)
        put(self, memory, stream, length, (rows, rows))
    if memory.slot is not None:
        begin = memory.slot * self.slots.longest
        self.slots._logs[:, begin + kept : begin + self.slots.longest] = torch.nan


HISTORIES = ("RWD-1", "RWD-2", "REC-1", "REC-2", "ISO-1", "ISO-2", "SCH-1", "SCH-2", "RES-1", "RES-2", "RES-3", "DRF-1")
NO_STATE = frozenset({"REC-1", "REC-2"})  # of a recurrent layer
CONTROLS = (
    Control(n6, DFLASH2, HISTORIES, NO_STATE),  # a hybrid's only state is that of the last chunk, which n6 drops
    Control(n8, WINDOW2, HISTORIES, NO_STATE),
    Control(n8, HYBRID2, HISTORIES),
)
