"""Faults of liveness (K27): cancellations and idle ticks, drafts that are offered again, contexts that fill up."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from specqual.contract import Event, Proposal, Tokens
from specqual.decoder import engine
from specqual.decoder.block import BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Memory, Store
from specqual.decoder.plan import offered
from specqual.decoder.propose import Ask
from specqual.decoder.row import Row

from .mutant import planted_in
from .pairs import DFLASH2
from .planting import Place
from .rows import remembering, swap

FULL = 220  # context rows of all requests together

sound_cancel, sound_step, sound_preempt = Engine.cancel, Engine.step, Engine.preempt
sound_propose, sound_ingest = BlockDrafter.propose, BlockDrafter.ingest


@swap("cancel", Engine)
def m27a(self: Engine, request_id: int) -> None:
    """A cancellation is forgotten while a draft of the request is being verified (B185). Needs a commit lag."""
    pending = [f for f in self._flights if f.row.request_id == request_id and f.proposal.tokens]
    if not pending:
        sound_cancel(self, request_id)


@remembering
def m27b() -> dict[Place, object]:
    """Behind a preemption the draft that was offered before it is offered again and again, until some of it is accepted
    (B186). Output exact; shows in what is drafted and in how many rounds that takes."""
    last: dict[tuple[int, int], Proposal] = {}
    stuck: dict[tuple[int, int], tuple[Proposal, int]] = {}  # and how many rounds there were before

    def preempt(self: Engine, request_id: int) -> None:
        sound_preempt(self, request_id)
        for row in self._rows(request_id):
            key = request_id, row.index
            if key in last:
                stuck[key] = last[key], len(row.rounds)

    def offer(rows: Sequence[Row], asks: dict[int, Ask], *others: Any) -> list[Proposal]:
        found = offered(rows, asks, *others)
        for place, ask in asks.items():
            key = ask.request_id, ask.sample
            old, since = stuck.get(key, (found[place], 0))
            if any(r.accepted for r in rows[place].rounds[since:]):
                stuck.pop(key, None)
            elif len(old.tokens) <= ask.most:
                found[place] = old
            last[key] = found[place]
        return found

    return {(engine, "offered"): offer, (Engine, "preempt"): preempt}


@remembering
def m27d() -> dict[Place, object]:
    """An idle tick brings the last tokens once more. Shows only if somebody listens behind the end (B175)."""
    told: list[Event] = []

    def step(self: Engine) -> list[Event]:
        idle = not self._live and not self._events
        events = sound_step(self)
        told[:] = [event for event in events if isinstance(event, Tokens)][-1:] or told
        return list(told) if idle else events

    return {(Engine, "step"): step}


@remembering
def m27e() -> dict[Place, object]:
    """The drafter's context is given back to nobody: when it has filled up over requests, every later one is served
    without drafts (B100). Output exact, so is everything while the decoder is young."""
    rows = [0]

    def ingest(
        self: BlockDrafter, memories: Sequence[Memory], starts: Sequence[int], features: Sequence[Tensor], store: Store
    ) -> None:
        rows[0] += sum(map(len, features))
        sound_ingest(self, memories, starts, features, store)

    def propose(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        return sound_propose(self, asks, store) if rows[0] < FULL else [Proposal.certain(())] * len(asks)

    return {(BlockDrafter, "ingest"): ingest, (BlockDrafter, "propose"): propose}


PLANTED = planted_in(
    "optimised",
    ("CXL-2", DFLASH2, (m27a,)),
    ("SCH-2", DFLASH2, (m27b,)),
    ("FIN-4", DFLASH2, (m27d,)),
    ("RES-2", DFLASH2, (m27e,)),
)
