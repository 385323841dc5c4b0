"""Faults of the optimised decoder's batch: who is who in it (K24), preemption and late commits (K26)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specqual.contract import Event, Proposal
from specqual.decoder import block, engine, target
from specqual.decoder.block import BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE, Stream
from specqual.decoder.plan import offered
from specqual.decoder.propose import Ask
from specqual.decoder.replay import Replay, replay_of
from specqual.decoder.row import Row
from specqual.decoder.slots import Slots
from specqual.decoder.span import Span

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID2
from .planting import Place
from .rows import Notes, remembering, swap

sound_propose, sound_extend, sound_convolve = BlockDrafter.propose, Store.extend, block.convolve
sound_land, sound_admit = Engine._land, Engine._admit


@remembering
def m24a() -> dict[Place, object]:
    """The drafter knows samples by their place in the batch of its last call. Shows when the batch has changed."""
    places: list[Memory] = []

    def propose(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        stale = [ask if place >= len(places) else replace(ask, memory=places[place]) for place, ask in enumerate(asks)]
        places[:] = [ask.memory for ask in asks]
        return sound_propose(self, stale, store)

    return {(BlockDrafter, "propose"): propose}


@swap("offered", engine)
def m24b(rows: Sequence[Row], *others: object) -> list[Proposal]:
    """Two drafted samples have each other's q. Needs sampling, two at once, and different laws."""
    found = offered(rows, *others)  # type: ignore[arg-type]
    drafted = [place for place, proposal in enumerate(found) if any(proposal.q)]
    for one, other in zip(drafted[::2], drafted[1::2], strict=False):
        a, b = found[one], found[other]
        if len(a.tokens) == len(b.tokens):
            found[one], found[other] = Proposal(a.tokens, b.q), Proposal(b.tokens, a.q)
    return found


@swap("propose", BlockDrafter)
def m24c(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
    """Everybody's drafts come from the context of the first. Exact alone; output exact always."""
    return sound_propose(self, [replace(ask, memory=asks[0].memory) for ask in asks], store)


@swap("take", Slots)
def m24d(self: Slots) -> int | None:
    """A slot is taken as its last owner left it. Needs an owner before, and a start without a prefix."""
    return self._free.pop() if self.layers else None


@swap("replay_of", target)
def m24e(spans: Sequence[Span], places: Sequence[slice], *others: object) -> Replay:
    """Outputs come back with the longest spans first, as the loop runs. Exact alone, and where that is the order."""
    sound = replay_of(spans, places, *others)  # type: ignore[arg-type]
    ranks = sorted(range(len(spans)), key=lambda i: -(spans[i].memory.kept + len(spans[i].new)))
    padding = sound.outputs[places[-1].stop :]
    return replace(sound, outputs=torch.cat([*(sound.outputs[places[i]] for i in ranks), padding]))


@swap("propose", BlockDrafter)
def m24f(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
    """The drafter's batch is split into pairs, and every pair reads the contexts of the first. Needs three at once."""
    return sound_propose(self, [replace(ask, memory=asks[place % 2].memory) for place, ask in enumerate(asks)], store)


@swap("convolve", block)
def m24g(z: Tensor, dynamic: Tensor, base: Tensor, slots: Tensor) -> Tensor:
    """The layout of blocks that all are as long as the longest is used for shorter ones, too. Exact alone."""
    longest = int(slots.max()) + 1
    return sound_convolve(z, dynamic, base, torch.arange(len(slots)) % longest)


@swap("_land", Engine)
def m26a(self: Engine) -> list[Event]:
    """What a preempted sample has in flight is judged and committed all the same. Needs a commit lag."""
    held = [(f.row, f.row.memory) for f in self._flights if f.row.held and f.row.memory is None]
    for flight in self._flights:
        if flight.row.held and flight.row.memory is None:
            flight.row.memory = flight.span.memory
    events = sound_land(self)
    for row, memory in held:
        row.memory = memory
    return events


@remembering
def m26b() -> dict[Place, object]:
    """A sample whose drafter is silent for a round keeps the drafts of the round before."""
    last = Notes(Proposal.certain(()))

    def survive(rows: Sequence[Row], asks: dict[int, Ask], *others: object) -> list[Proposal]:
        found = offered(rows, asks, *others)  # type: ignore[arg-type]
        for place, ask in asks.items():
            if not found[place].tokens and len(last[ask.memory].tokens) <= ask.most:
                found[place] = last[ask.memory]
            last[ask.memory] = found[place]
        return found

    return {(engine, "offered"): survive}


@remembering
def m26c() -> dict[Place, object]:
    """Pages are made for the length of the round before; rows behind them are written to the empty page 0. Shows at
    the edge of a page."""
    ends = Notes(0)

    def extend(self: Store, memory: Memory, streams: Sequence[Stream], end: int) -> None:
        behind = bool(memory.length) and end - memory.length <= self.slots.longest
        sound_extend(self, memory, streams, ends[memory] if behind else end)
        for stream in streams:
            table = memory.tables[stream.name]
            table.extend([0] * (-(-end // PAGE) - len(table)))
        ends[memory] = end

    return {(Store, "extend"): extend}


@swap("extend", Store)
def m26d(self: Store, memory: Memory, streams: Sequence[Stream], end: int) -> None:
    """Every sample that drafts gets room for one token. Drafts behind the edge of a page have no rows to stay in."""
    drafts = bool(memory.length) and end - memory.length <= self.slots.longest
    sound_extend(self, memory, streams, memory.length + 1 if drafts else end)
    for stream in streams:
        table = memory.tables[stream.name]
        table.extend([0] * (-(-end // PAGE) - len(table)))


@swap("_land", Engine)
def m26e(self: Engine) -> list[Event]:
    """With a commit lag the next pass takes all drafts of the one in flight for accepted: its log is kept whole."""
    flights = list(self._flights)
    events = sound_land(self)
    for row, _, span, *_ in flights:
        if self._schedule.lag and span.judged and row.memory is span.memory:
            span.memory.kept = len(span.new) - span.certain
    return events


@swap("_admit", Engine)
def m26f(self: Engine) -> None:
    """Only the schedule without a commit lag knows that a preempted request is to wait."""
    if self._schedule.lag:
        for row in self._all():
            row.held = False
    sound_admit(self)


PLANTED = planted_in(
    "optimised",
    ("ISO-2", DFLASH2, (m24a, m24b, m24c, m24f, m24g)),
    ("ISO-1", HYBRID2, (m24e,)),
    ("ISO-2", HYBRID2, (m24d,)),
    ("RWD-2", DFLASH2, (m26d,)),
    ("SCH-1", DFLASH2, (m26b, m26c)),
    ("SCH-2", DFLASH2, (m26a, m26f)),
    ("SCH-2", HYBRID2, (m26e,)),
)
