"""Controls in the optimised decoder: what looks odd in its caches, and is right."""

import torch

from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE
from specqual.decoder.prefixes import CHUNK, Ids, Prefixes

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
