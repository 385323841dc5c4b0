"""Driving a decoder through its contract: requests in, answers out, every failure of the decoder marked as its own."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, TypeVar

from specqual.contract import (
    Decoder,
    Finished,
    FinishReason,
    InvalidRequest,
    Refused,
    Request,
    Round,
    Schedulable,
    Tokens,
    Traced,
    Unsupported,
    Usage,
)

T = TypeVar("T")
TICKS, TURNS = count(1), count(1)  # of every step, and of everything that is heard


class DecoderError(Exception):
    """The decoder crashed, raised or ran out of time: an ERROR, whatever the clause."""


class NotOffered(Exception):
    """What the clause needs is not offered or not claimed: SKIPPED with this reason."""


class _OutOfTime(BaseException):  # not an Exception, so that no engine's own handler swallows it
    pass


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the body after `seconds` where the platform can (main thread, POSIX); raises DecoderError."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(signum: int, frame: Any) -> None:
        raise _OutOfTime

    began, before = monotonic(), signal.signal(signal.SIGALRM, ring)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _OutOfTime:
        raise DecoderError(f"did not answer within {seconds:g} seconds") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:  # the deadline around this one goes on; one that has passed meanwhile rings at once
            signal.setitimer(signal.ITIMER_REAL, max(outer - (monotonic() - began), 1e-6))


def guarded(what: str, call: Callable[[], T], seconds: float = 120.0) -> T:
    """Call into a decoder; anything it raises, except what the contract knows, becomes a DecoderError."""
    try:
        with deadline(seconds):
            return call()
    except (InvalidRequest, Unsupported, DecoderError, NotOffered):
        raise
    except Exception as error:
        raise DecoderError(f"{what} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that came back for one request.

    `samples` are the output ids; `finals` counts final events, `late` the tokens that came after the first of them.
    `told` are its tokens as they came, event by event, and `ticks` the step that brought each; `rounds` are None where
    the decoder is not Traced. `span` are the places of its first and its last tokens among all that ever came; None if
    none did.
    """

    request: Request
    request_id: int
    samples: tuple[tuple[int, ...], ...]
    reasons: tuple[FinishReason, ...]
    usage: Usage | None
    refused: str | None
    finals: int
    late: int
    rounds: tuple[Round, ...] | None
    told: tuple[Tokens, ...]
    ticks: tuple[int, ...] = ()
    span: tuple[int, int] | None = None

    @property
    def output(self) -> tuple[int, ...]:
        return self.samples[0]

    def rounds_of(self, sample: int) -> list[Round]:
        """The rounds of one sample; none where the decoder is not Traced."""
        return [r for r in self.rounds or () if r.sample == sample]

    def history(self, place: int | None = None) -> str:
        """The rounds of the first sample in words: prefill 5 · draft 7 accept 2 · …, up to the one that committed the
        output token `place`; empty where the decoder is not Traced."""
        words, committed = list[str](), 0
        for r in self.rounds or ():
            if r.sample or (place is not None and committed > place):
                break
            drafted = f"draft {len(r.proposals)} accept {r.accepted}" if r.proposals else "no draft"
            words.append(drafted if words else f"prefill {len(self.request.prompt)}")
            committed += len(r.committed)
        return " · ".join(words)


def stray(answer: Answer, vocabulary: int) -> str | None:
    """What in a finished answer no decoder may say, with its field: a sample without a token, or an id that is none of
    the vocabulary's, be it of an output or of its rounds; None if there is nothing of that kind."""
    if () in answer.samples:
        return f"samples: sample {answer.samples.index(())} ended without a token"
    told = [("samples", ids) for ids in answer.samples]
    for r in answer.rounds or ():
        told += [("proposals", r.proposals), ("committed", r.committed)]
        told += [("q", law.ids) for law in r.q if law is not None]
    strays = ((field, token) for field, ids in told for token in ids if not 0 <= token < vocabulary)
    return next((f"{field}: {token} is no token of a vocabulary of {vocabulary}" for field, token in strays), None)


def together(decoder: Decoder, one: Answer, other: Answer) -> bool:
    """Whether two requests of one batch were served together.

    A step of a Schedulable decoder is one tick: tokens of both came in one, other than the one in which one of them
    ended and the other began. Else a step may wait for output, and all that can be seen is whether each began before
    the other had ended.
    """
    if one.span is None or other.span is None:
        return False
    if isinstance(decoder, Schedulable):
        handed = {one.ticks[-1]} & {other.ticks[0]} | {one.ticks[0]} & {other.ticks[-1]}
        return bool(set(one.ticks) & set(other.ticks) - handed)
    return one.span[0] <= other.span[1] and other.span[0] <= one.span[1]


def serve(decoder: Decoder, requests: Sequence[Request], seconds: float = 120.0) -> tuple[Answer, ...]:
    """Submit the requests together and step until each has its final event, and once more to hear late ones.

    Raises DecoderError if the decoder raises, speaks of unknown requests or says nothing new for `seconds`, however
    long all of it takes, and NotOffered if it refuses a request by an event. InvalidRequest passes through.
    """
    answers = serve_any(decoder, requests, seconds)
    for answer in answers:
        if answer.refused is not None:
            raise NotOffered(f"a request of {len(answer.request.prompt)} tokens was refused: {answer.refused}")
        if answer.usage is None:
            raise DecoderError("a request ended without a Finished event")
    return answers


def serve_any(
    decoder: Decoder,
    requests: Sequence[Request],
    seconds: float = 120.0,
    on_tick: Callable[[int, Sequence[int]], None] | None = None,
) -> tuple[Answer, ...]:
    """As `serve`, but refusals are answers, too; `on_tick(tick, request ids)` runs after every step."""
    ids = [guarded("submit", lambda r=r: decoder.submit(r), seconds) for r in requests]
    places = {request_id: place for place, request_id in enumerate(ids)}
    if len(places) < len(ids):
        raise DecoderError("submit gave the same id to two requests")
    samples: list[list[list[int]]] = [[[] for _ in range(r.n)] for r in requests]
    told: list[list[tuple[int, Tokens]]] = [[] for _ in requests]
    finals: list[list[Finished | Refused]] = [[] for _ in requests]
    late = [0] * len(requests)
    spans: list[tuple[int, int] | None] = [None] * len(requests)
    tick, extra, stop = 0, 1, monotonic() + seconds
    while extra:
        if all(finals):
            extra -= 1
        elif monotonic() > stop:
            waiting = sum(not events for events in finals)
            raise DecoderError(
                f"{waiting} of {len(requests)} requests did not finish: nothing new for {seconds:g} seconds"
            )
        now = next(TICKS)
        for event in guarded("step", decoder.step, max(1.0, stop - monotonic())):
            place = places.get(event.request_id)
            if place is None:
                if isinstance(event, Tokens) or event.request_id is None:
                    raise DecoderError(f"an event names request {event.request_id}, which was not submitted here")
                continue  # the final event of a request that an earlier clause cancelled
            if isinstance(event, Tokens):
                first, turn = spans[place], next(TURNS)
                spans[place] = (turn if first is None else first[0], turn)
                if finals[place]:
                    late[place] += len(event.ids)
                elif not 0 <= event.sample < requests[place].n:
                    raise DecoderError(f"an event names sample {event.sample} of {requests[place].n}")
                else:
                    sample = samples[place][event.sample]
                    sample.extend(int(token) for token in event.ids)
                    told[place].append((now, event))
                    if event.ids and len(sample) <= requests[place].max_tokens:  # what has no end is nothing new
                        stop = monotonic() + seconds
            else:
                finals[place].append(event)
                stop = monotonic() + seconds
        if on_tick is not None:
            on_tick(tick, ids)
        tick += 1
    answers = []
    for place, request in enumerate(requests):
        final, request_id = finals[place][0], ids[place]
        rounds = None
        if isinstance(decoder, Traced):
            rounds = guarded("rounds", lambda i=request_id: tuple(decoder.rounds(i)))
        done = isinstance(final, Finished)
        answers.append(
            Answer(
                request,
                request_id,
                tuple(tuple(sample) for sample in samples[place]),
                final.reasons if done else (),
                final.usage if done else None,
                None if done else final.error,
                len(finals[place]),
                late[place],
                rounds,
                tuple(event for _, event in told[place]),
                tuple(when for when, _ in told[place]),
                spans[place],
            )
        )
    return tuple(answers)
