"""The reference decoder: the contract at its fullest, without a cache, a batch or any other state between rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specqual.contract import (
    Claims,
    Event,
    Finished,
    FinishReason,
    InvalidRequest,
    Proposal,
    Refused,
    Request,
    Round,
    Scored,
    Script,
    ScriptContext,
    State,
    Tape,
    Usage,
    validate,
)

from .drafter import DraftContext, Drafter
from .rng import Counter
from .score import score
from .tally import tally
from .target import Target
from .text import Text
from .transaction import Plan, Sample, advance


@dataclass(frozen=True, slots=True)
class _Live:
    request: Request
    samples: tuple[Sample, ...]
    held: bool = False


class ReferenceDecoder:
    """Decodes every live request, one round per sample and tick, each round from the committed tokens alone.

    Implements Decoder, Scoring, Traced, Counted, Scripted, Taped, Inspectable and Schedulable.
    """

    def __init__(self, target: Target, drafter: Drafter | None, claims: Claims, text: Text | None = None) -> None:
        self.claims = claims
        self._target, self._drafter, self._text = target, drafter, text
        self._tape: Tape = Counter()
        self._script: Script | None = None
        self._draft_length = claims.limits.max_draft
        self._live: dict[int, _Live] = {}
        self._rounds: dict[int, tuple[Round, ...]] = {}
        self._usages: list[Usage] = []
        self._pending: list[Event] = []  # what happened outside a tick

    # Decoder

    def submit(self, request: Request) -> int:
        """Queue a request; one whose prompt leaves no room in the context is refused by an event."""
        validate(request, self.claims.limits)
        if request.stop_strings and self._text is None:
            raise InvalidRequest("stop_strings", "needs a tokenizer.json beside the target")
        request_id = len(self._rounds)
        self._rounds[request_id] = ()
        length, longest = len(request.prompt), self.claims.limits.max_context
        if length + 1 > longest:
            self._pending.append(
                Refused(request_id, f"prompt: {length} tokens leave no room in a context of {longest}")
            )
        else:
            samples = tuple(Sample(request_id, request, index) for index in range(request.n))
            self._live[request_id] = _Live(request, samples)
        return request_id

    def step(self) -> list[Event]:
        """Run one round of every unfinished sample that is not held."""
        events, self._pending = self._pending, []
        for request_id, live in list(self._live.items()):
            if live.held:
                continue
            samples = []
            for sample in live.samples:
                if sample.reason is None:
                    sample, tokens = advance(sample, self._plan)
                    events.append(tokens)
                samples.append(sample)
            self._keep(request_id, replace(live, samples=tuple(samples)))
            if all(sample.reason is not None for sample in samples):
                events.append(self._finish(request_id))
        return events

    def cancel(self, request_id: int) -> None:
        """End a request; its final event comes with the next tick."""
        live = self._live[request_id]
        samples = (replace(sample, reason=sample.reason or FinishReason.CANCELLED) for sample in live.samples)
        self._keep(request_id, replace(live, samples=tuple(samples)))
        self._pending.append(self._finish(request_id))

    def close(self) -> None:
        self._live.clear()
        self._pending.clear()

    # Scoring, Traced, Counted, Scripted, Taped

    def score(self, prompt: Sequence[int], output: Sequence[int]) -> Scored:
        """Judge a given output in one pass over the held weights."""
        return score(self._target, prompt, output)

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        """All rounds of a request, samples in order; KeyError if it was never submitted."""
        return self._rounds[request_id]

    def counters(self) -> Mapping[str, int]:
        """Counted from all rounds and usages so far: every round of a sample is one pass of the target."""
        return tally([r for rounds in self._rounds.values() for r in rounds], self._usages)

    def script(self, drafter: Script | None) -> None:
        self._script = drafter

    def tape(self, tape: Tape | None) -> None:
        self._tape = Counter() if tape is None else tape

    # Inspectable

    def inspect(self, request_id: int, sample: int = 0) -> State:
        """The state that a decoder with caches would hold after the last commit, recomputed from the tokens."""
        live = self._live[request_id]
        if not 0 <= sample < len(live.samples) or live.samples[sample].reason is not None:
            raise KeyError(f"sample {sample} of request {request_id} is not live")
        tokens = live.samples[sample].tokens
        if len(tokens) == 1:
            return State(0, {}, {})
        forward = self._target.forward(tokens[:-1])
        tensors, positions = dict(forward.tensors), dict(forward.positions)
        if self._drafter is not None:
            more, places = self._drafter.state(DraftContext(tokens, forward.hidden, self._target))
            tensors |= more
            positions |= places
        return State(len(tokens) - 1, tensors, positions)

    def resources(self) -> Mapping[str, int]:
        """Nothing is owned between rounds."""
        return {}

    # Schedulable

    def preempt(self, request_id: int) -> None:
        """Hold a request: it keeps its tokens, and ticks pass it by."""
        self._live[request_id] = replace(self._live[request_id], held=True)

    def resume(self, request_id: int) -> None:
        self._live[request_id] = replace(self._live[request_id], held=False)

    def schedule(
        self,
        *,
        chunk: int | None = None,
        lag: int | None = None,
        bucket: int | None = None,
        draft: int | None = None,
    ) -> None:
        """Set the draft length; chunks and buckets mean nothing without a cache or a batch, and any size will do.

        ValueError for a size below one, a commit lag other than 0, and a draft length above the limit.
        """
        for name, value in (("chunk", chunk), ("bucket", bucket)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        if lag:
            raise ValueError(f"lag: this decoder commits in the tick of the round, got {lag}")
        if draft is not None:
            if not 0 <= draft <= self.claims.limits.max_draft:
                raise ValueError(f"draft: must be between 0 and {self.claims.limits.max_draft}, got {draft}")
            self._draft_length = draft

    # Parts

    @property
    def _plan(self) -> Plan:
        drafter = self._drafter
        return Plan(
            self._target,
            self.claims.rule,
            self._tape,
            self._draft_length,
            self._scripted if self._script is not None else self._drafted if drafter is not None else None,
            drafter is not None and drafter.needs_features,
            self._text,
        )

    def _drafted(self, sample: Sample, length: int, uniform: Callable[[int], float]) -> Proposal:
        assert self._drafter is not None
        context = DraftContext(sample.tokens, sample.features, self._target)
        return self._drafter.propose(context, length, sample.request.sampling, uniform)

    def _scripted(self, sample: Sample, length: int, uniform: Callable[[int], float]) -> Proposal:
        assert self._script is not None
        return self._script(ScriptContext(sample.request_id, sample.index, sample.tokens, len(sample.rounds), length))

    def _keep(self, request_id: int, live: _Live) -> None:
        self._live[request_id] = live
        self._rounds[request_id] = tuple(round for sample in live.samples for round in sample.rounds)

    def _finish(self, request_id: int) -> Finished:
        live = self._live.pop(request_id)
        emitted = sum(len(sample.output) for sample in live.samples)
        reasons = tuple(sample.reason or FinishReason.CANCELLED for sample in live.samples)
        self._usages.append(Usage(len(live.request.prompt), emitted))
        return Finished(request_id, reasons, self._usages[-1])
