"""Faults at limits (K29): ends of contexts and position tables, draft lengths beyond what is left, narrow indices."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specqual.contract import Event, Proposal, Request, Tokens
from specqual.decoder.arithmetic import Turns
from specqual.decoder.block import BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Store
from specqual.decoder.pages import Pages, Table
from specqual.decoder.propose import Ask
from specqual.decoder.row import Row
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer
from specqual.decoder.view import View

from .mutant import planted_in
from .pairs import DFLASH2, FLAT, HYBRID2, WINDOW2
from .planting import Place
from .rows import remembering, swap

K = 4  # of every nano drafter
FAR = 10**6

sound_propose, sound_find, sound_forward = BlockDrafter.propose, Pages.find, Transformer.forward
sound_headroom, sound_submit, sound_at, sound_step = Row.headroom, Engine.submit, Turns.at, Engine.step


@swap("propose", BlockDrafter)
def m29a(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
    """The drafter goes on drafting behind the last position that it knows (B196, B197). Output exact; shows where the
    target's context is longer than the drafter's."""
    return sound_propose(replace(self, config=replace(self.config, max_context=FAR)), asks, store)


@swap("headroom", Row)
def m29b(self: Row, max_context: int) -> int:
    """Nobody asks whether the context has room for a whole round, as long as the budget has (B198, B200). Shows where
    a budget reaches beyond the context."""
    return sound_headroom(self, FAR)


@swap("find", Pages)
def m29c(self: Pages, tables: Sequence[Table], view: View) -> Tensor:
    """Page times stride is kept in 16 bits, so that high pages are read and written in the place of low ones (B205,
    B207). Exact until 64 pages are in use."""
    stride = self.page_bytes // 4  # float32 numbers of a page
    return sound_find(self, tables, view) * stride % 2**15 // stride


@swap("forward", Transformer)
def m29d(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """The buffer of logits has one row for each of 16 samples, and what does not fit lands in front again (B203).
    Shows once a pass judges more than 16 rows."""
    found = sound_forward(self, spans, store, rows)
    if not any(len(rows) for rows in found.logits):
        return found
    every = torch.cat(found.logits)
    held = every[-16:].roll(len(every) % 16, 0) if len(every) > 16 else every
    judged = [span.judged for span in spans]
    return found._replace(logits=tuple(torch.split(held[torch.arange(len(every)) % len(held)], judged)))


@swap("headroom", Row)
def m29e(self: Row, max_context: int) -> int:
    """The limit of the context includes the rows that are reserved for drafts (B199): an output may be K too long."""
    return sound_headroom(self, max_context + K)


@swap("headroom", Row)
def m29f(self: Row, max_context: int) -> int:
    """A sample ends where the context has no room for K drafts more, though it has for some tokens."""
    return min(sound_headroom(self, max_context), max(1, max_context - K - len(self.tokens)))


@swap("submit", Engine)
def m29g(self: Engine, request: Request) -> int:
    """A prompt that does not fit is cut without a word, and served."""
    most = self._target.max_context - 1
    return sound_submit(self, replace(request, prompt=request.prompt[-most:]))


@swap("at", Turns)
def m29h(self: Turns, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Positions are kept in seven bits: the 128th is turned like the first. Exact before it, and where none is."""
    return sound_at(self, positions % 128, dtype)


@remembering
def m29i() -> dict[Place, object]:
    """Rounds are counted in a byte, and the 256th is taken for the end of what the sample was promised: it is served
    no further token, but finishes. Shows in outputs of many rounds."""

    def step(self: Engine) -> list[Event]:
        events = sound_step(self)
        for event in events:
            if isinstance(event, Tokens) and event.request_id in self._live:
                row = self._live[event.request_id][event.sample]
                if len(row.rounds) > 255:
                    row.request = replace(row.request, max_tokens=len(row.output) + 1)
        return events

    return {(Engine, "step"): step}


PLANTED = planted_in(
    "optimised",
    ("LIM-1", DFLASH2, (m29f, m29h)),
    ("LIM-2", FLAT, (m29b, m29e)),
    ("LIM-2", DFLASH2, (m29f, m29g)),
    ("LIM-4", DFLASH2, (m29a,)),
    ("LIM-5", DFLASH2, (m29c, m29d)),
    ("LIM-5", HYBRID2, (m29d,)),
    ("LIM-6", DFLASH2, (m29h,)),
    ("LIM-6", WINDOW2, (m29h,)),
    ("LIM-7", FLAT, (m29i,)),
)
