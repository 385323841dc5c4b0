"""Requests served to their ends by the reference decoder on the nano checkpoints."""

from typing import Any

from specqual import fixtures
from specqual.contract import (
    CompactLaw,
    Event,
    Finished,
    FinishReason,
    Proposal,
    Refused,
    Request,
    Sampling,
    Script,
    Tokens,
)
from specqual.reference import ReferenceDecoder

DENSE, DFLASH2 = fixtures.path("nano/dense"), fixtures.path("nano/dense-dflash2")
PROMPT = tuple(byte - 32 for byte in b"def add(a, b):")
WARM = Sampling(temperature=1.0, top_p=0.95)
STOP, LENGTH, CANCELLED = FinishReason


def serve(decoder: ReferenceDecoder, *requests: Request) -> list[tuple[tuple[tuple[int, ...], ...], Finished]]:
    """Run requests side by side to their ends: the outputs of all samples and the final event of each."""
    ids = [decoder.submit(request) for request in requests]
    events: list[Event] = []
    while new := decoder.step():
        events += new
    return [(outputs(events, i, request.n), final(events, i)) for i, request in zip(ids, requests, strict=True)]


def outputs(events: list[Event], request_id: int, n: int = 1) -> tuple[tuple[int, ...], ...]:
    mine = [event for event in events if isinstance(event, Tokens) and event.request_id == request_id]
    return tuple(tuple(i for event in mine if event.sample == sample for i in event.ids) for sample in range(n))


def final(events: list[Event], request_id: int) -> Finished:
    (event,) = [e for e in events if isinstance(e, Finished | Refused) and e.request_id == request_id]
    assert isinstance(event, Finished)
    return event


def output(decoder: ReferenceDecoder, request: Request) -> tuple[int, ...]:
    return serve(decoder, request)[0][0][0]


def law(*masses: float, ids: tuple[int, ...] = ()) -> CompactLaw:
    return CompactLaw(ids or tuple(range(len(masses))), masses)


def knowing(right: tuple[int, ...], *pattern: bool) -> Script:
    """A drafter that knows the greedy output `right` and errs wherever the repeated pattern says False."""

    def draft(context: Any) -> Proposal:
        emitted = len(context.tokens) - len(PROMPT)
        following = right[emitted : emitted + context.max_draft]
        return Proposal.certain(
            tuple(t if pattern[i % len(pattern)] else (t + 1) % 96 for i, t in enumerate(following))
        )

    return draft
