"""The engine: continuous batching, one target forward per tick for every sample that is in.

admit -> propose -> verify -> accept -> commit -> emit. The scheduler moves rows and lengths; it never looks at what a
tensor holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from specqual.contract import (
    Claims,
    Event,
    Finished,
    FinishReason,
    InvalidRequest,
    Proposal,
    Purpose,
    Refused,
    Request,
    Round,
    Scored,
    Script,
    State,
    Tape,
    Usage,
    validate,
)

from .inspection import state_of
from .memory import Memory, Store
from .pages import PAGE, Stream
from .propose import Ask, Proposer, scripted
from .rng import Counter
from .row import Row
from .scoring import score
from .span import Pass, Span
from .text import Text
from .transaction import Terms, numbers, transact
from .verify import legal

LONGEST_CHUNK = 256  # tokens of a prompt that one tick takes at most; windowed streams reserve room for so many


class Target(Protocol):
    """What the engine knows of a target."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_ids(self) -> tuple[int, ...]: ...
    @property
    def max_context(self) -> int: ...
    @property
    def streams(self) -> tuple[Stream, ...]: ...

    def forward(self, spans: Sequence[Span], store: Store) -> Pass:
        """Run over all spans at once; the pools have room for them."""
        ...


class Engine:
    """Implements Decoder, Scoring, Traced, Scripted, Taped, Inspectable and Schedulable."""

    def __init__(
        self, target: Target, proposer: Proposer | None, store: Store, claims: Claims, text: Text | None = None
    ) -> None:
        self.claims = claims
        self._target, self._proposer, self._store, self._text = target, proposer, store, text
        self._tape: Tape = Counter()
        self._script: Script | None = None
        self._draft_length, self._chunk = claims.limits.max_draft, LONGEST_CHUNK
        self._live: dict[int, list[Row]] = {}
        self._rounds: dict[int, list[Row]] = {}
        self._events: list[Event] = []  # what happened outside of a tick

    # Decoder

    def submit(self, request: Request) -> int:
        """Queue a request; one that can never fit, in the context or in the pool, is refused by an event."""
        validate(request, self.claims.limits)
        if request.stop_strings and self._text is None:
            raise InvalidRequest("stop_strings", "needs a tokenizer.json beside the target")
        request_id, most = len(self._rounds), self._most_pages(request)
        rows = [Row(request_id, request, index) for index in range(request.n)]
        self._rounds[request_id] = rows
        if len(request.prompt) >= self._target.max_context:
            problem = f"prompt: {len(request.prompt)} tokens leave no room in a context of {self._target.max_context}"
            self._events.append(Refused(request_id, problem))
        elif most > self._store.pages.count:
            problem = f"max_tokens: needs {most} pages at its end, and the pool has {self._store.pages.count}"
            self._events.append(Refused(request_id, problem))
        else:
            self._live[request_id] = rows
        return request_id

    def step(self) -> list[Event]:
        """One tick: let rows in, draft, run the target once over everything, and commit."""
        events, self._events = self._events, []
        self._admit()
        rows = [row for row in self._all() if row.memory is not None]
        if rows:
            proposals = self._propose(rows)
            spans = [self._span(row, proposal) for row, proposal in zip(rows, proposals, strict=True)]
            for span in spans:
                self._store.extend(span.memory, self._target.streams, span.end)
            found = self._target.forward(spans, self._store)
            events += self._commit(rows, proposals, spans, found)
        return events

    def cancel(self, request_id: int) -> None:
        """End a request at once; its final event comes with the next tick."""
        for row in self._live[request_id]:
            row.reason = row.reason or FinishReason.CANCELLED
            self._release(row)
        self._events.append(self._finish(request_id))

    def close(self) -> None:
        for row in self._all():
            self._release(row)
        self._live.clear()
        self._events.clear()

    # Scoring, Traced, Scripted, Taped, Inspectable

    def score(self, prompt: Sequence[int], output: Sequence[int]) -> Scored:
        """Judge an output by the same kernels, in pages of its own."""
        return score(self._target, self._store, prompt, output, LONGEST_CHUNK)

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        return tuple(round for row in self._rounds[request_id] for round in row.rounds)

    def script(self, drafter: Script | None) -> None:
        self._script = drafter

    def tape(self, tape: Tape | None) -> None:
        self._tape = Counter() if tape is None else tape

    def inspect(self, request_id: int, sample: int = 0) -> State:
        """What the pools hold for a sample at its committed length."""
        rows = self._live[request_id]
        memory = rows[sample].memory if 0 <= sample < len(rows) else None
        if memory is None:
            raise KeyError(f"sample {sample} of request {request_id} owns nothing")
        return state_of(memory, self._store)

    def resources(self) -> Mapping[str, int]:
        """Free pages and recurrent slots, and how many more samples may be let in."""
        store = self._store
        return {"pages": store.pages.free, "slots": store.slots.free, "samples": store.samples - len(store.open)}

    # Schedulable

    def preempt(self, request_id: int) -> None:
        """Take everything from a request; its tokens stay, and it waits until it is resumed."""
        for row in self._live[request_id]:
            self._release(row)
            row.held = True

    def resume(self, request_id: int) -> None:
        """Let a request in again, in its turn: what it had is filled again by the same kernels, to the same bits."""
        for row in self._live[request_id]:
            row.held = False

    def schedule(
        self, *, chunk: int | None = None, lag: int | None = None, bucket: int | None = None, draft: int | None = None
    ) -> None:
        """Set chunk and draft length. A chunk is rounded up to whole pages, so that its borders lie where they always
        lie; a bucket means nothing, because every call has the shape of one tile."""
        for name, value in (("chunk", chunk), ("bucket", bucket)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        if lag:
            raise ValueError(f"lag: this decoder commits in the tick of the round, got {lag}")
        if draft is not None and not 0 <= draft <= self.claims.limits.max_draft:
            raise ValueError(f"draft: must be between 0 and {self.claims.limits.max_draft}, got {draft}")
        if chunk is not None:
            self._chunk = min(-(-chunk // PAGE) * PAGE, LONGEST_CHUNK)
        if draft is not None:
            self._draft_length = draft

    # Parts of a tick

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

    def _propose(self, rows: Sequence[Row]) -> list[Proposal]:
        """Drafts for every row that has nothing left to fill; what is no legal proposal counts as none."""
        asks: dict[int, Ask] = {}
        for place, row in enumerate(rows):
            assert row.memory is not None
            most = min(self._draft_length, row.headroom(self._target.max_context) - 1)
            if row.rounds and row.memory.length == row.settled and most > 0:
                uniform = numbers(row, self._terms, len(row.tokens))
                asks[place] = Ask(
                    row.request_id,
                    row.index,
                    row.tokens,
                    len(row.rounds),
                    most,
                    row.request.sampling,
                    row.memory,
                    lambda slot, uniform=uniform: uniform(Purpose.DRAFT, slot),  # type: ignore[misc]
                )
        offered = list[Proposal]()
        if asks and self._script is not None:
            offered = scripted(self._script, list(asks.values()))
        elif asks and self._proposer is not None:
            offered = self._proposer.propose(list(asks.values()), self._store)
        proposals = [Proposal.certain(())] * len(rows)
        for (place, ask), proposal in zip(asks.items(), offered, strict=False):
            if legal(proposal, self._target.vocab_size, ask.most):
                proposals[place] = proposal
        return proposals

    def _span(self, row: Row, proposal: Proposal) -> Span:
        """What a row's next pass runs over: a chunk of what is to be filled, or the anchor and its drafts."""
        memory, tokens = row.memory, row.tokens
        assert memory is not None
        row.forwards += 1
        if memory.length < row.settled:
            border = (memory.length // self._chunk + 1) * self._chunk
            end = min(border, row.settled)
            anchor = end == len(tokens)
            return Span(tokens[:end], memory.length, memory, end - memory.length - anchor, int(anchor))
        drafts = proposal.tokens
        return Span(tokens + drafts, memory.length, memory, 0, 1 + len(drafts))

    def _commit(
        self, rows: Sequence[Row], proposals: Sequence[Proposal], spans: Sequence[Span], found: Pass
    ) -> list[Event]:
        """Judge every row that reached its anchor, move lengths, and let the drafter take in what was committed."""
        events = list[Event]()
        kept: list[tuple[Memory, int, int, Tensor]] = []
        for row, proposal, span, logits, features in zip(
            rows, proposals, spans, found.logits, found.features, strict=True
        ):
            if span.judged:
                events.append(transact(row, proposal, logits.double().numpy(), self._terms))
            length = len(row.tokens) - 1 if span.judged else span.end
            if row.reason is None:
                kept.append((span.memory, length, length - span.start - span.certain, features[: length - span.start]))
            elif row.memory is not None:
                self._release(row)
            if all(other.reason is not None for other in self._live[row.request_id]):
                events.append(self._finish(row.request_id))
        if self._proposer is not None and kept:
            memories, _, _, features = zip(*kept, strict=True)
            self._proposer.ingest(memories, [memory.length for memory in memories], features, self._store)
        for memory, length, logged, _ in kept:
            self._store.commit(memory, length, logged)
        return events

    def _release(self, row: Row) -> None:
        if row.memory is not None:
            self._store.give(row.memory)
            row.memory = None

    def _finish(self, request_id: int) -> Finished:
        rows = self._live.pop(request_id)
        reasons = tuple(row.reason or FinishReason.CANCELLED for row in rows)
        return Finished(request_id, reasons, Usage(len(rows[0].request.prompt), sum(len(row.output) for row in rows)))

    @property
    def _terms(self) -> Terms:
        target = self._target
        return Terms(self.claims.rule, self._tape, target.eos_ids, target.max_context, self._text)
