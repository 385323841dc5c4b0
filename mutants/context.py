"""Faults of the optimised decoder's drafter context (K22), which lies in the page pool beside the target's rows."""

from dataclasses import replace

from torch import Tensor

from specqual.decoder.block import Block, BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Store
from specqual.decoder.pages import Pages, Stream, Table

from .mutant import planted_in
from .pairs import WINDOW2
from .planting import Place
from .rows import Notes, put, remembering, swap
from .state import eagerly

sound_attend, sound_ingest, sound_settle = BlockDrafter._attend, BlockDrafter.ingest, Pages.settle


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
    ("RWD-1", WINDOW2, (m22a, m22b2)),
    ("RES-3", WINDOW2, (m22c,)),
    ("DRF-1", WINDOW2, (m22d2,)),
)
