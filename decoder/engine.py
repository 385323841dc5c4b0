"""The engine: continuous batching, one target forward per tick for every sample that is in.

admit -> propose -> verify -> accept -> commit -> emit. The scheduler moves rows and lengths; it never looks at what a
tensor holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from specqual.contract import (
    Claims,
    Event,
    Finished,
    FinishReason,
    InvalidRequest,
    Kernels,
    Proposal,
    Refused,
    Request,
    Round,
    Scored,
    Script,
    State,
    Tape,
    Tokens,
    Usage,
    validate,
)

from .counts import Counts
from .flight import Flight, Judge, Turns, known
from .inspection import state_of
from .memory import Memory, Store
from .plan import decided, offered, room_of, span_of, unservable, wanted
from .policies import Policies, padded_rows
from .prefixes import Prefixes
from .propose import Ask, Proposer
from .rng import Counter
from .row import Row
from .schedule import LONGEST_CHUNK, Schedule
from .scoring import score
from .span import Span, Target
from .text import Text
from .transaction import Terms, commit, transact
from .verify import Verdict


class Engine:
    """Implements Decoder, Scoring, Traced, Counted, Scripted, Taped, Inspectable, Schedulable and Dissectable."""

    def __init__(
        self,
        target: Target,
        proposer: Proposer | None,
        store: Store,
        prefixes: Prefixes,
        claims: Claims,
        text: Text | None,
        policies: Policies,
        remembered: int,
        kernels: Kernels,
        counts: Counts,
        judge: Judge | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.claims = claims
        self._target, self._proposer, self._store, self._text = target, proposer, store, text
        self._tape: Tape = Counter()
        self._script: Script | None = None
        self._prefixes, self._policies, self._remembered = prefixes, policies, remembered
        self._kernels, self._judge, self._turns = kernels, judge, turns
        self._schedule = Schedule(claims.limits.max_draft)
        self._flights: list[Flight] = []
        self._ids = count()
        self._counts = counts
        self._live: dict[int, list[Row]] = {}
        self._ended: dict[int, list[Row]] = {}  # the last ones, oldest first
        self._events: list[Event] = []  # what happened outside of a tick

    # Decoder

    def submit(self, request: Request) -> int:
        """Queue a request; one that can never fit, in the context or in the pool, is refused by an event."""
        validate(request, self.claims.limits)
        if request.stop_strings and self._text is None:
            raise InvalidRequest("stop_strings", "needs a tokenizer.json beside the target")
        request_id = next(self._ids)
        problem = unservable(request, self._target.max_context, self._most_pages(request), self._store)
        if problem is None:
            self._live[request_id] = [Row(request_id, request, index) for index in range(request.n)]
        else:
            self._remember(request_id, [])
            self._events.append(Refused(request_id, problem))
        return request_id

    def step(self) -> list[Event]:
        """One tick: let rows in, draft, run the target once over everything, and commit: at once, or with a commit lag
        at the beginning of the next tick."""
        events, self._events = self._events, []
        events += self._land()
        self._admit()
        self._launch()
        if not self._schedule.lag:
            events += self._land()
        return events

    def cancel(self, request_id: int) -> None:
        """End a request at once, whatever is in flight; its final event comes with the next tick."""
        for row in self._rows(request_id):
            row.reason = row.reason or FinishReason.CANCELLED
            self._release(row)
        self._events.append(self._finish(request_id))

    def close(self) -> None:
        for row in self._all():
            self._release(row)
        self._live.clear()
        self._events.clear()
        self._flights.clear()
        self._prefixes.close()

    # Scoring, Traced, Counted, Scripted, Taped, Inspectable

    def score(self, prompt: Sequence[int], output: Sequence[int]) -> Scored:
        """Judge an output by the same kernels, in pages of its own."""
        return score(self._target, self._store, prompt, output, LONGEST_CHUNK)

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        rows = self._ended[request_id] if request_id in self._ended else self._rows(request_id)
        return tuple(round for row in rows for round in row.rounds)

    def counters(self) -> Mapping[str, int]:
        return dict(self._counts.found)

    def script(self, drafter: Script | None) -> None:
        self._script = drafter

    def tape(self, tape: Tape | None) -> None:
        self._tape = Counter() if tape is None else tape

    def inspect(self, request_id: int, sample: int = 0) -> State:
        """What the pools hold for a sample at its committed length."""
        rows = self._rows(request_id)
        memory = rows[sample].memory if 0 <= sample < len(rows) else None
        if memory is None:
            raise KeyError(f"sample {sample} of request {request_id} owns nothing")
        return state_of(memory, self._store)

    def resources(self) -> Mapping[str, int]:
        """Pages and recurrent slots that are free or can be had back from the prefix cache, and how many more samples
        may be let in."""
        store, cache = self._store, self._prefixes
        return {
            "pages": store.pages.free + cache.idle_pages,
            "slots": store.slots.free + cache.idle_slots,
            "samples": store.samples - len(store.open),
        }

    # Dissectable

    def kernels(self) -> Kernels:
        return self._kernels

    # Schedulable

    def preempt(self, request_id: int) -> None:
        """Take everything from a request, what is in flight too; its tokens stay, and it waits until it is resumed."""
        for row in self._rows(request_id):
            self._release(row)
            row.held = True

    def resume(self, request_id: int) -> None:
        """Let a request in again, in its turn: what it had is filled again by the same kernels, to the same bits."""
        for row in self._rows(request_id):
            row.held = False

    def schedule(
        self, *, chunk: int | None = None, lag: int | None = None, bucket: int | None = None, draft: int | None = None
    ) -> None:
        """Set chunk, commit lag (0 or 1), bucket and draft length. A chunk is rounded up to whole pages; the rows of a
        pass are padded to a multiple of the bucket, in whole tiles."""
        if bucket is not None and bucket < 1:
            raise ValueError(f"bucket: must be at least 1, got {bucket}")
        self._schedule = self._schedule.changed(self.claims.limits.max_draft, chunk, lag, draft)
        if bucket is not None:
            self._policies = replace(self._policies, bucket=bucket)

    # Parts of a tick

    def _rows(self, request_id: int) -> list[Row]:
        """The samples of a live request."""
        if request_id not in self._live:
            raise KeyError(f"request {request_id} is unknown or has ended")
        return self._live[request_id]

    def _all(self) -> Iterator[Row]:
        return (row for rows in self._live.values() for row in rows)

    def _most_pages(self, request: Request) -> int:
        length = min(len(request.prompt) + request.max_tokens, self._target.max_context)
        return self._store.most_pages(length, max(LONGEST_CHUNK, self.claims.limits.max_draft + 1))

    def _admit(self) -> None:
        """Let rows in by age, as long as the oldest fits: nobody is overtaken."""
        for row in self._all():
            if row.waiting:
                row.memory = self._store.take(self._most_pages(row.request))
                if row.memory is None:
                    return
                if not row.follows(self._live[row.request_id]):
                    self._prefixes.attach(row.memory, row.request.prompt, len(row.tokens) - 1)

    def _launch(self) -> None:
        """Draft, and run the target over the spans of all rows; what is certain about them is kept at once."""
        rows = [row for row in self._all() if row.memory is not None and not row.follows(self._live[row.request_id])]
        if not rows:
            return
        decisions = decided(rows, self._policies, self._schedule)
        asks = wanted(rows, decisions, self._terms)
        self._make_room(rows, asks)
        found = self._turns(rows, asks, self._terms) if self._turns is not None and self._script is None else None
        flights = self._in_parts(rows, asks) if found is None else self._in_one(rows, found)
        self._counts.passed()
        flights = [
            flight._replace(policy={**decision.told, **flight.policy})
            for flight, decision in zip(flights, decisions, strict=True)
        ]
        self._ingest([(f.span.memory, f.features[: f.span.certain]) for f in flights if not f.taken])
        for flight in flights:
            span, memory, prompt = flight.span, flight.span.memory, flight.row.request.prompt
            memory.length, memory.kept = span.start + span.certain, 0
            self._prefixes.publish(memory, prompt, span.start, memory.length, span.mark)
        flights = [other for flight in flights for other in (flight, *self._forks(flight))]
        judge = self._judge if found is None else None
        self._flights = flights if judge is None else judge(flights, self._terms)

    def _make_room(self, rows: Sequence[Row], asks: Mapping[int, Ask]) -> None:
        """Take the pages of a pass before it: what it takes, and what a cache gives back for it, is the same whether it
        is run in parts or as one round."""
        for place, row in enumerate(rows):
            assert row.memory is not None
            end = room_of(row, asks.get(place), self._schedule.chunk)
            for model in (self._target, self._proposer):
                self._store.extend(row.memory, () if model is None else model.streams, end)

    def _in_parts(self, rows: Sequence[Row], asks: Mapping[int, Ask]) -> list[Flight]:
        """Draft, and then run the target over what was drafted."""
        proposals = offered(rows, asks, self._script, self._proposer, self._store, self._target.vocab_size)
        spans = [span_of(*pair, self._schedule.chunk, self._prefixes) for pair in zip(rows, proposals, strict=True)]
        padding = self._padding(spans)
        found = self._target.forward(spans, self._store, padding.get("bucket", 0))
        return [Flight(*parts, padding) for parts in zip(rows, proposals, spans, *found, strict=True)]

    def _in_one(self, rows: Sequence[Row], found: Sequence[tuple[Proposal, Verdict]]) -> list[Flight]:
        """What was run as one round."""
        nothing = torch.empty(0)
        spans = [
            span_of(row, proposal, self._schedule.chunk, self._prefixes)
            for row, (proposal, _) in zip(rows, found, strict=True)
        ]
        padding = self._padding(spans)
        return [
            Flight(row, proposal, span, nothing, nothing, padding, known(verdict), True)
            for row, span, (proposal, verdict) in zip(rows, spans, found, strict=True)
        ]

    def _padding(self, spans: Sequence[Span]) -> dict[str, int]:
        size = padded_rows(self._policies, sum(len(span.new) for span in spans))
        return {"bucket": size} if self._policies.bucket else {}

    def _land(self) -> list[Event]:
        """Judge and commit what is in flight, except for rows that have lost their memory since."""
        events, grown = list[Event](), list[tuple[Flight, int]]()
        flights, self._flights = [f for f in self._flights if f.row.memory is f.span.memory], []
        for flight in flights:
            row, span = flight.row, flight.span
            if span.judged:
                events.append(self._settled(flight))
                self._counts.committed(row.rounds[-1])
            if row.reason is not None:
                self._release(row)
            else:
                grown.append((flight, len(row.tokens) - 1 - span.memory.length if span.judged else 0))
            if all(other.reason is not None for other in self._live[row.request_id]):
                events.append(self._finish(row.request_id))
        fresh = [(flight.span, flight.features, new) for flight, new in grown if not flight.taken]
        self._ingest([(span.memory, rows[span.certain : span.certain + new]) for span, rows, new in fresh])
        for flight, new in grown:
            memory = flight.span.memory
            self._store.commit(memory, memory.length + new, new)
        return events

    def _settled(self, flight: Flight) -> Tokens:
        """Commit by the verdict of a device or, where there is none, by the logits."""
        parts = flight.row, flight.proposal
        if flight.verdict is not None:
            return commit(*parts, flight.verdict(), self._terms, flight.policy)
        return transact(*parts, flight.logits.cpu().numpy(), self._terms, flight.policy)

    def _forks(self, flight: Flight) -> Iterator[Flight]:
        """The samples that waited for this one to fill their prompt, once it has: one pass serves them all."""
        if flight.span.judged and not flight.row.rounds:
            for row in self._live[flight.row.request_id]:
                if row.memory is not None and row.follows(self._live[row.request_id]):
                    self._store.fork(flight.span.memory, row.memory)
                    yield flight.forked(row, row.memory)

    def _ingest(self, grown: Sequence[tuple[Memory, Tensor]]) -> None:
        """Let the drafter take in the features [n, taps * H] of tokens that follow each memory's length."""
        grown = [(memory, features) for memory, features in grown if len(features)]
        if self._proposer is not None and grown:
            memories, features = zip(*grown, strict=True)
            self._proposer.ingest(memories, [memory.length for memory in memories], features, self._store)

    def _release(self, row: Row) -> None:
        if row.memory is not None:
            self._store.give(row.memory)
            row.memory = None

    def _finish(self, request_id: int) -> Finished:
        rows = self._live.pop(request_id)
        self._remember(request_id, rows)
        reasons = tuple(row.reason or FinishReason.CANCELLED for row in rows)
        usage = Usage(len(rows[0].request.prompt), sum(len(row.output) for row in rows))
        self._counts.ended(usage)
        return Finished(request_id, reasons, usage)

    def _remember(self, request_id: int, rows: list[Row]) -> None:
        """Keep the rounds of a request that has ended for as long as few enough others have ended since."""
        self._ended[request_id] = rows
        while len(self._ended) > self._remembered:
            del self._ended[next(iter(self._ended))]

    @property
    def _terms(self) -> Terms:
        target = self._target
        return Terms(self.claims.rule, self._tape, target.eos_ids, target.max_context, self._text)
