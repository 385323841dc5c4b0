"""Listening to a decoder for the first time: every event is checked, and a mistake says what to do about it."""

from collections.abc import Sequence
from time import monotonic
from typing import Any

from specqual.contract import Decoder, Event, Finished, FinishReason, Refused, Request, Tokens, Usage

from .drive import guarded

SECONDS = 60.0  # for one answer


class Mistake(Exception):
    """What an adapter does wrong, with what to do about it."""


def listen(decoder: Decoder, ids: Sequence[int], requests: Sequence[Request]) -> tuple[list[list[int]], int]:
    """Step until each request has its final event, and twice more: output of each, and steps; Mistake for anything that
    the contract forbids."""
    outputs = {request_id: list[int]() for request_id in ids}
    finals = dict[int, Event]()
    stop, steps, extra = monotonic() + SECONDS, 0, 2
    while extra:
        if len(finals) == len(ids):
            extra -= 1
        elif monotonic() > stop:
            missing = next(i for i in ids if i not in finals)
            got = f"{len(outputs[missing])} tokens" if outputs[missing] else "nothing"
            raise Mistake(
                f"request {missing} has no final event after {SECONDS:g} seconds and {steps} steps, it emitted {got}; "
                "end every request with one Finished"
            )
        for event in events_of(decoder):
            known(event, outputs, finals)
            if isinstance(event, Tokens):
                outputs[event.request_id] += event.ids
            else:
                finals[event.request_id] = event
        steps += 1
    for request_id, request in zip(ids, requests, strict=True):
        ended(request, outputs[request_id], finals[request_id])
    return [outputs[request_id] for request_id in ids], steps - 2


def events_of(decoder: Decoder) -> list[Event]:
    """One step's events, each of the right type."""
    events: Any = guarded("step", decoder.step, SECONDS)
    if not isinstance(events, list):
        raise Mistake(f"step returned {type(events).__name__}; it must return a list of events, empty if there is none")
    for event in events:
        if not isinstance(event, Tokens | Finished | Refused):
            raise Mistake(
                f"step returned a {type(event).__name__} among its events; they are Tokens, Finished, Refused"
            )
        if isinstance(event, Tokens):
            if not isinstance(event.ids, tuple):
                raise Mistake(
                    f"Tokens.ids is a {type(event.ids).__name__}; it must be a tuple of int (.tolist() first)"
                )
            for token in event.ids:
                if type(token) is not int:
                    raise Mistake(f"Tokens.ids holds a {type(token).__name__}; token ids must be int (.item(), int())")
    return events


def known(event: Event, outputs: dict[int, list[int]], finals: dict[int, Event]) -> None:
    if event.request_id not in outputs:
        raise Mistake(f"an event names request {event.request_id!r}, and submit never returned that id")
    if event.request_id in finals:
        what = f"{len(event.ids)} tokens" if isinstance(event, Tokens) else "a second final event"
        raise Mistake(f"{what} of request {event.request_id} came after its final event; nothing may follow that")


def ended(request: Request, output: list[int], final: Event, reason: FinishReason | None = None) -> None:
    """Raise Mistake unless the final event fits the output."""
    if isinstance(final, Refused):
        raise Mistake(f"a request of {len(request.prompt)} tokens was refused: {final.error}")
    assert isinstance(final, Finished)
    if len(final.reasons) != request.n or not all(isinstance(why, FinishReason) for why in final.reasons):
        raise Mistake(
            f"Finished.reasons is {final.reasons!r}; it must hold one FinishReason for each of {request.n} samples"
        )
    if reason is not None and final.reasons != (reason,):
        raise Mistake(f"the reason is {final.reasons[0]}, expected {reason}")
    wanted = Usage(len(request.prompt), len(output))
    if final.usage != wanted:
        raise Mistake(f"Finished.usage is {final.usage!r}, but the events add up to {wanted!r}")
    if reason is None and not 1 <= len(output) <= request.max_tokens:
        raise Mistake(
            f"{len(output)} tokens were emitted where max_tokens is {request.max_tokens}; the prompt is no output"
        )
