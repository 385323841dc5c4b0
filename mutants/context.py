"""Faults of the optimised decoder's drafter context (K21, K22), which shares the page pool with the target's rows."""

from dataclasses import replace

import torch
from torch import Tensor

from specqual.decoder.block import Block, BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Store
from specqual.decoder.pages import Pages, Stream, Table
from specqual.decoder.view import View

from .mutant import planted_in
from .pairs import WINDOW2
from .planting import Place
from .rows import Notes, put, remembering, swap
from .state import eagerly

sound_attend, sound_ingest, sound_settle, sound_write = (
    BlockDrafter._attend,
    BlockDrafter.ingest,
    Pages.settle,
    Pages.write,
)


@swap("write", Pages)
def m21g(self: Pages, stream: Stream, pages: Tensor, view: View, key: Tensor, value: Tensor) -> None:
    """The drafter's rows go to the page that their position names, as if positions were slots; whoever owns that page
    loses what is in it. Exact while pages are given out in order and to nobody else."""
    if stream.name.startswith("draft"):
        named = torch.tensor(view.firsts)[:, None] + torch.arange(pages.shape[1]) + 1
        pages = torch.where(pages > 0, named.clamp(max=self.count), pages)
    sound_write(self, stream, pages, view, key, value)


@remembering
def m22a() -> dict[Place, object]:
    """Keys and values of the drafter's own block stay as the context of the drafts that were accepted."""
    own = Notes[dict[int, tuple[Tensor, ...]]]({})

    def attend(self: BlockDrafter, index: int, x: Tensor, block: Block, store: Store) -> Tensor:
        _, key, value = self._projected(index, x, block)
        for rank, sample in enumerate(block.rows.samples):
            memory, at = block.memories[sample], block.own[rank][block.own[rank] < len(x)]
            own[memory] = {**own[memory], index: (key[at], value[at])}
        return sound_attend(self, index, x, block, store)

    def ingest(self: BlockDrafter, memories, starts, features, store: Store) -> None:
        sound_ingest(self, memories, starts, features, store)
        for memory, start, new in zip(memories, starts, features, strict=True):
            for layer, sides in own[memory].items():
                put(store, memory, self.streams[layer], start + 1, [side[1 : len(new)] for side in sides])
            own[memory] = {}

    return {(BlockDrafter, "_attend"): attend, (BlockDrafter, "ingest"): ingest}


@remembering
def m22b2() -> dict[Place, object]:
    """The rows of rejected drafts are appended to the context, and those of later tokens behind them."""
    ends = Notes(0)

    def ingest(self: BlockDrafter, memories, starts, features, store: Store) -> None:
        for memory, start, new in zip(memories, starts, features, strict=True):
            if start >= ends[memory] or len(new) > ends[memory] - start:
                place = min(max(start, ends[memory]), start + self.draft_length)
                sound_ingest(self, [memory], [place], [new], store)
                ends[memory] = place + len(new)

    return {(Engine, "_launch"): eagerly, (BlockDrafter, "ingest"): ingest}


@swap("settle", Pages)
def m22c(self: Pages, stream: Stream, table: Table, length: int) -> None:
    """The drafter's window is never trimmed. Output and acceptance exact, pages grow with the length."""
    sound_settle(self, replace(stream, window=None) if stream.name.startswith("draft") else stream, table, length)


@swap("ingest", BlockDrafter)
def m22d2(self: BlockDrafter, memories, starts, features, store: Store) -> None:
    """A full window keeps its oldest rows and takes in no new ones. Shows in acceptance, behind the window."""
    sound_ingest(self, memories, starts, features, store)
    for stream in self.streams:
        for memory, start, new in zip(memories, starts, features, strict=True):
            first = max(start, stream.window or start + len(new))
            lost = max(0, start + len(new) - first)
            blank = self.tensors["hidden_norm.weight"].new_zeros(lost, stream.kv_heads, stream.head_dim)
            put(store, memory, stream, first, (blank, blank))


PLANTED = planted_in(
    "optimised",
    ("RWD-1", WINDOW2, (m21g, m22a, m22b2)),
    ("RES-3", WINDOW2, (m22c,)),
    ("DRF-1", WINDOW2, (m22d2,)),
)
