"""A whole round as one graph: drafts, the target's pass over them, verdicts, and what the drafter takes in.

One copy to the device before it, one back behind it. The drafter takes in the features of all rows of the pass: those
behind what is accepted lie beyond a sample's length, where nobody sees them, until the next round writes there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specqual.contract import Proposal, Rule

from ..drafts import lengths_of
from ..memory import Memory, Store
from ..propose import Ask
from ..row import Row
from ..transaction import Terms
from ..verify import Verdict
from .carry import Array, brought, joined, parted
from .drafter import DeviceDrafter
from .graphs import Graphs, Recorded, Recorder, bucket
from .judging import MOST, certain, demands, judged, needed, plain
from .rounds import Frame, Piece, frame_of, packed, read
from .target import DeviceTarget
from .walks import Walks, Way, lasting, proposal_of


class Seat(NamedTuple):
    """One sample of a round: the token behind its memory's length, and how many drafts it gets."""

    memory: Memory
    anchor: int
    drafts: int = 0
    temperature: float = 0.0  # of its drafts
    uniform: tuple[float, ...] = ()  # of each draft


@dataclass(frozen=True, slots=True)
class Turn:
    """Rounds over one store, by a target and its drafter; without one, of the target alone."""

    target: DeviceTarget
    drafter: DeviceDrafter | None
    store: Store

    @property
    def slots(self) -> int:
        """Drafts of one sample, at most."""
        return self.store.slots.longest - 1

    def frame(self, seats: Sequence[Seat]) -> Frame | None:
        """What a round over these seats is filled up to."""
        streams = (*self.target.streams, *(() if self.drafter is None else self.drafter.streams))
        return bucket(frame_of([piece_of(seat) for seat in seats], streams), self.store)

    def sides(self, seats: Sequence[Seat], frame: Frame, needs: Sequence[Array] = ()) -> list[Array]:
        """What the device is told of a round; `needs` are what verdicts need besides, as in `judging.needed`. The pools
        have room for it."""
        pieces = [piece_of(seat) for seat in seats]
        there = packed(pieces, self.target.streams, frame).numpy()
        ends = [frame.rows] * 5 if len(needs) == 5 else [frame.rows] * 4 + [frame.samples] * 3
        wanted = (filled(side, end) for side, end in zip(needs, ends, strict=False))
        return [there, *self._drafting(seats, frame), *wanted]

    def _drafting(self, seats: Sequence[Seat], frame: Frame) -> list[Array]:
        """Blocks, the rows in them that drafts are read from, where the rows of the target's pass get their ids, and
        what walks are told."""
        if self.drafter is None:
            return []
        blocks, known = self.drafter.laid([seat[:3] for seat in seats], self.slots)
        rows, source = np.zeros(frame.samples * self.slots, np.int32), list[int]()
        anchors, temperature = np.zeros(frame.samples, np.int32), np.zeros(frame.samples, np.float32)
        uniform = np.zeros((frame.samples, self.slots))
        rows[: len(known)] = known
        for place, seat in enumerate(seats):
            first = frame.samples + place * self.slots
            source += [place, *range(first, first + seat.drafts)]
            anchors[place], temperature[place] = seat.anchor, seat.temperature
            uniform[place, : len(seat.uniform)] = seat.uniform
        block = packed(blocks, self.drafter.streams, frame).numpy()
        return [block, rows, filled(np.array(source, np.int32), frame.rows), anchors, temperature, uniform]

    def body(self, frame: Frame, way: Way, rule: Rule, sides: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Drafts [B, K], ids and q [B, K, C], accepted [B] and the token behind them [B], by sides on the device.

        Nothing here waits for the device. Rows and samples that fill up the frame read what is somebody's, and say
        nothing that anybody asks for.
        """
        target, drafter, (there, *rest) = self.target, self.drafter, sides
        told = read(there, target.streams, frame)
        drafted = certain(told.ids.new_zeros(frame.samples, max(1, self.slots)))
        if drafter is not None:
            block, rows, source, anchors, temperature, uniform, *rest = rest
            context = read(block, drafter.streams, frame)
            if way is not Way.NOTHING:
                (normed,) = drafter.block(self.store, context)
                hidden = normed.index_select(0, rows)
                drafted = drafter.draft(way, hidden, drafter.logits(hidden), Walks(anchors, temperature, uniform))
                told = told._replace(ids=torch.cat([anchors, drafted.tokens.flatten()]).index_select(0, source))
        needs = demands(rest)
        normed, features = target.through(self.store, told)
        claimed = drafted if needs is not None and rule is Rule.RATIO else certain(drafted.tokens)
        verdicts = judged(target.head(normed), told.spans.first, claimed, needs)
        if drafter is not None:
            drafter.remember(self.store, told._replace(tables=context.tables), features)
        return *drafted, *verdicts

    @torch.inference_mode()
    def standing(self, seats: Sequence[Seat], way: Way = Way.SELECTOR) -> "Standing":
        """A captured greedy round over these seats, which runs over the same again each time: for clocks.

        The pools have room for it. Lengths stay as they are, and a memory's `kept` says what was accepted before.
        """
        frame = self.frame(seats)
        if frame is None:
            raise ValueError(f"seats: must have at most {self.slots} drafts each")
        sides = self.sides(seats, frame)
        there = parted(joined(sides).to(self.target.device), sides)
        return Standing(there, Recorder(self.target.device).record(lambda: self.body(frame, way, Rule.NONE, there)))


class Standing(NamedTuple):
    """A captured round and what it reads, which no graph keeps from being freed."""

    told: Sequence[Tensor]
    recorded: Recorded

    @torch.inference_mode()
    def __call__(self) -> None:
        self.recorded.again()


def filled(side: Array, end: int) -> Array:
    """An array with as many copies of its first row behind it as it takes."""
    return np.concatenate([side, side[:1].repeat(end - len(side), 0)])


def piece_of(seat: Seat) -> Piece:
    """The rows of a seat in the target's pass; drafts are not known yet."""
    length = seat.memory.length
    return Piece(seat.memory, (seat.anchor, *[0] * seat.drafts), length, length - seat.memory.kept, 0)


@dataclass(frozen=True, slots=True)
class WholeRounds:
    """Runs the rounds of all rows at once, by the graphs of their shapes."""

    turn: Turn
    graphs: Graphs

    @torch.inference_mode()
    def __call__(
        self, rows: Sequence[Row], asks: Mapping[int, Ask], terms: Terms
    ) -> list[tuple[Proposal, Verdict]] | None:
        """A proposal and its verdict for every row; None where one of them has no round to run, or wants what is the
        host's, or has no graph yet, or cannot have all drafts that it was to get."""
        way, lengths = self._fit(rows, asks)
        seats = [
            Seat(row.memory, row.tokens[-1], length)
            for row, length in zip(rows, lengths, strict=True)
            if row.memory is not None
        ]
        frame = None if way is None else self.turn.frame(seats)
        if way is None or frame is None:
            return None
        key = "turn", frame, way, any(not row.request.sampling.greedy for row in rows)
        if not self.graphs.ready(key):
            return None
        for place, ask in asks.items():  # nothing is drawn before it is sure to be used
            numbers = tuple(ask.uniform(slot) for slot in range(lengths[place]))
            seats[place] = seats[place]._replace(temperature=ask.sampling.temperature, uniform=numbers)
        needs = needed(rows, lengths, terms, max(1, self.turn.slots))
        return self._run([row.request.sampling.greedy for row in rows], seats, needs, key, terms.rule)

    def _fit(self, rows: Sequence[Row], asks: Mapping[int, Ask]) -> tuple[Way | None, list[int]]:
        """How drafts are chosen, None if not in one round for all, and how many each row gets."""
        drafter, lengths = self.turn.drafter, [0] * len(rows)
        for row in rows:
            if not row.rounds or row.memory is None or row.memory.length != row.settled or not plain(row.request):
                return None, lengths
        if drafter is None:
            return Way.NOTHING, lengths
        for place, length in zip(asks, lengths_of(drafter.config, list(asks.values())), strict=True):
            lengths[place] = length
        ways = {drafter.way(ask) for place, ask in asks.items() if lengths[place]}
        way = Way.NOTHING if not ways else ways.pop() if len(ways) == 1 else Way.HOST
        wide = way is Way.SELECTOR and drafter.codes is not None and drafter.codes.count > MOST
        return None if way is Way.HOST or wide else way, lengths

    def _run(
        self,
        greedy: Sequence[bool],
        seats: Sequence[Seat],
        needs: Sequence[Array],
        key: tuple[str, Frame, Way, bool],
        rule: Rule,
    ) -> list[tuple[Proposal, Verdict]] | None:
        """None where some drafts have no law to be judged by: that round counts as not run, and the one in parts, which
        asks for fewer, begins where it began."""
        _, frame, way, _ = key
        sides = self.turn.sides(seats, frame, needs)

        def body(flat: Tensor) -> tuple[Tensor, ...]:
            return self.turn.body(frame, way, rule, parted(flat, sides))

        *drafted, accepted, tokens = brought(self.graphs.over(key, body, joined(sides)))
        if any(last < seat.drafts for last, seat in zip(lasting(*drafted), seats, strict=False)):
            for seat in seats:
                seat.memory.kept = 0  # its recurrent state has moved up to its length
            return None
        found = zip(greedy, seats, accepted.tolist(), tokens.tolist(), *drafted, strict=False)
        return [
            (proposal_of(sure, seat.drafts, *draft), Verdict(accepted, token))
            for sure, seat, accepted, token, *draft in found
        ]
