"""The undisturbed twin: the same requests and the same tokens in decoders where nothing ever happens to them."""

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specqual.contract import Decoder, Proposal, Refused, Request, Round, ScriptContext, State
from specqual.reference import make as reference

from .drive import Answer, DecoderError, NotOffered, guarded, serve, serve_any
from .sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .lab import Lab

Ids = tuple[int, ...]
TOGETHER = 8  # replays in one decoder


@dataclass
class Twin:
    """Answers and states of undisturbed decoders, remembered. Each is asked in a fresh decoder, so nothing is warm.

    States are the decoder's own where it claims to be bitwise invariant, else the reference's.
    """

    lab: "Lab"
    _plain: dict[Request, Answer] = field(default_factory=dict)
    _alone: dict[Request, Answer] = field(default_factory=dict)
    _states: dict[Ids, State] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> Sizes:
        """What its scheduler takes."""
        with self.fresh() as decoder:
            return Sizes.of(decoder)

    @property
    def bitwise(self) -> bool:
        return self.lab.claims.greedy.bitwise

    @contextmanager
    def fresh(self) -> "Iterator[Any]":
        """A decoder of the run's setup of its own; closed afterwards."""
        decoder = guarded("make", self.lab.build, 600.0)
        try:
            yield decoder
        finally:
            guarded("close", decoder.close)

    def plain(self, request: Request) -> Answer:
        """The request alone and without a draft; on the way, the state behind every token."""
        if request not in self._plain:
            with self.fresh() as decoder:
                guarded("schedule", lambda: decoder.schedule(draft=0))
                answers = serve_any(decoder, [request], on_tick=lambda _, ids: self._keep(decoder, request, ids[0]))
            self._plain[request] = finished(answers[0])
        return self._plain[request]

    def _keep(self, decoder: Any, request: Request, request_id: int) -> None:
        if not self.bitwise:
            return
        for sample in range(request.n):
            state = look(decoder, request_id, sample)
            tokens = committed(request, decoder.rounds(request_id), sample)
            if state is not None and state.length:
                self._states.setdefault(tokens[: state.length], state)

    def alone(self, request: Request) -> Answer:
        """The request alone, with the configured drafter."""
        if request not in self._alone:
            with self.fresh() as decoder:
                self._alone[request] = serve(decoder, [request])[0]
        return self._alone[request]

    def retold(self, request: Request, rounds: Sequence[Round]) -> Answer:
        """The request alone, with the proposals of these rounds."""
        drafts: dict[tuple[int, int], Proposal] = {}
        for sample in range(request.n):
            own = [r for r in rounds if r.sample == sample]
            drafts |= {(sample, index): Proposal(r.proposals, r.q) for index, r in enumerate(own)}

        def script(context: ScriptContext) -> Proposal:
            return drafts.get((context.sample, context.round_index), Proposal.certain(()))

        with self.fresh() as decoder:
            guarded("script", lambda: decoder.script(script))
            return serve(decoder, [request])[0]

    def knows(self, tokens: Ids) -> bool:
        """Whether a state is remembered."""
        return tokens in self._states

    def states(self, wanted: Iterable[Ids]) -> dict[Ids, State]:
        """For each of these sequences the state of a decoder that was given it as a prompt, or decoded it plainly."""
        found = {tokens: self._states.get(tokens) for tokens in wanted}
        missing = [tokens for tokens, state in found.items() if state is None]
        for start in range(0, len(missing), TOGETHER):
            found |= self._replay(missing[start : start + TOGETHER])
        return {tokens: state for tokens, state in found.items() if state is not None}

    def _replay(self, sequences: Sequence[Ids]) -> dict[Ids, State]:
        """All of these in one decoder and at once, so that none can profit from another."""
        found: dict[Ids, State] = {}
        decoder = guarded("make", self._make, 600.0)
        ids = [guarded("submit", lambda t=tokens: decoder.submit(replayed(t, self.lab))) for tokens in sequences]
        waiting = dict(zip(ids, sequences, strict=True))
        for _ in range(10 + sum(map(len, sequences))):
            events = guarded("step", decoder.step)
            if any(isinstance(event, Refused) for event in events):
                raise NotOffered("a replay of committed tokens as a prompt was refused")
            for request_id, tokens in list(waiting.items()):
                state = look(decoder, request_id, 0)
                if state is not None and decoder.rounds(request_id) and state.length == len(tokens):
                    found[tokens] = state
                    del waiting[request_id]
            if not waiting:
                break
        guarded("close", decoder.close)
        if waiting:
            raise DecoderError(f"a prompt of {len(next(iter(waiting.values())))} tokens was never filled")
        return found

    def _make(self) -> Any:
        """The decoder that replays: one of the same make where bits are claimed to be equal, else the reference."""
        if self.bitwise:
            return self.lab.build()
        options = {"draft_format": self.lab.claims.draft_format}
        return reference(replace(self.lab.run.setup, options=options, dtype=None))


def replayed(tokens: Ids, lab: "Lab") -> Request:
    """These tokens as a prompt that leaves time to look at its state."""
    return Request(prompt=tokens, max_tokens=2, ignore_eos=lab.honours("ignore_eos"))


def finished(answer: Answer) -> Answer:
    if answer.usage is None:
        raise NotOffered(f"a request of {len(answer.request.prompt)} tokens was refused: {answer.refused}")
    return answer


def look(decoder: Decoder, request_id: int, sample: int) -> State | None:
    """The state of a sample, or None where it owns nothing."""

    def inspect() -> State | None:
        try:
            found: State = decoder.inspect(request_id, sample)  # type: ignore[attr-defined]
        except KeyError:
            return None
        return found

    return guarded("inspect", inspect)


def committed(request: Request, rounds: Iterable[Round], sample: int) -> Ids:
    """Prompt and committed output of a sample, the anchor last."""
    return (*request.prompt, *(token for r in rounds if r.sample == sample for token in r.committed))
