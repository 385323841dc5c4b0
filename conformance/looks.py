"""Looks at the state of requests while they are served."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specqual.contract import Decoder, Request, State

from .drive import guarded
from .twin import Ids, committed, look


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a sample behind a tick of step `place`; `tokens` are prompt and committed output."""

    place: int
    sample: int
    tokens: Ids
    state: State
    fresh: bool  # it has just committed something, so only the anchor lacks a state


def latest(looks: Sequence[Look], sample: int) -> Look | None:
    """The last look at a sample."""
    return next((seen for seen in reversed(looks) if seen.sample == sample), None)


def noted(looks: list[Look], request: Request, place: int, sample: int, tokens: Ids, state: State) -> Look | None:
    """Add a look at a sample if anything is new in it, and return it."""
    before = latest(looks, sample)
    if before is not None and (before.tokens, before.state.length) == (tokens, state.length):
        return None
    fresh = len(tokens) > len(before.tokens if before is not None else request.prompt)
    looks.append(Look(place, sample, tokens, state, fresh))
    return looks[-1]


@dataclass
class Watch:
    """Looks at one of some requests that are served together, after every tick."""

    decoder: Decoder
    request: Request
    place: int
    looks: list[Look] = field(default_factory=list)

    def __call__(self, tick: int, ids: Sequence[int]) -> None:
        request_id = ids[self.place]
        rounds = guarded("rounds", lambda: self.decoder.rounds(request_id))  # type: ignore[attr-defined]
        for sample in range(self.request.n):
            state = look(self.decoder, request_id, sample)
            if state is not None:
                noted(self.looks, self.request, tick, sample, committed(self.request, rounds, sample), state)
