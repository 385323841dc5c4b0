"""A first walk through an adapter: what works, which common mistake it makes, and what it could still offer."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from specqual.contract import (
    Claims,
    Decoder,
    Event,
    FinishReason,
    InvalidRequest,
    Limits,
    Make,
    Method,
    Request,
    Rule,
    Sampling,
    Setup,
    Tokens,
    Unsupported,
)

from .drive import DecoderError, NotOffered, guarded
from .listening import Mistake, ended, events_of, known, listen
from .unusual import unusual

BASE = ("submit", "step", "cancel", "close")
UNCLAIMED = "is set and not in claims.sampling"
LENGTH = 6
FIELDS = frozenset(field.name for kind in (Request, Sampling) for field in fields(kind)) - {"prompt", "sampling"}
FAULTS = (Mistake, DecoderError, InvalidRequest, Unsupported, NotOffered)


@dataclass(frozen=True, slots=True)
class Found:
    """One step of the walk: `works` is None for what is not offered."""

    what: str
    works: bool | None
    said: str


def walk(make: Make, setup: Setup) -> Iterator[Found]:
    """Try an adapter step by step; what later steps rest on ends the walk where it fails."""
    from .smoke_protocols import PROTOCOLS, protocol

    try:
        decoder = build(make, setup)
    except FAULTS as error:
        yield Found("make", False, str(error))
        return
    try:
        yield Found("make", True, f"a {type(decoder).__name__} with claims, {', '.join(BASE)}")
        for what, look in (("claims", partial(claimed, make, setup)), ("submit", submitted), ("step", stepped)):
            found = attempt(what, partial(look, decoder))
            yield found
            if not found.works:
                return
        for what, look in (("batch", together), ("cancel", cancelled), ("errors", refused)):
            yield attempt(what, partial(look, decoder))
        for name in PROTOCOLS:
            yield protocol(name, decoder)
        yield attempt("close", partial(closed, decoder))
    finally:
        with suppress(Exception):  # a second close after a good one; a first one after a mistake
            decoder.close()


def attempt(what: str, look: Callable[[], str]) -> Found:
    """One step of the walk."""
    try:
        return Found(what, True, look())
    except FAULTS as error:
        return Found(what, False, str(error))


def closed(decoder: Decoder) -> str:
    guarded("close", decoder.close)
    return "gives everything back"


def build(make: Make, setup: Setup) -> Decoder:
    decoder = guarded("make", lambda: make(setup), 600.0)
    if isinstance(decoder, type) or decoder is None:
        raise Mistake(f"make returned {decoder!r}; it must return the decoder itself")
    missing = [name for name in BASE if not callable(getattr(decoder, name, None))]
    if missing:
        raise Mistake(
            f"{type(decoder).__name__} has no method {', '.join(missing)}; every decoder needs {', '.join(BASE)}"
        )
    if not hasattr(decoder, "claims"):
        raise Mistake("the decoder has no attribute claims; make it a Claims that is computed from the setup")
    return decoder


def claimed(make: Make, setup: Setup, decoder: Decoder) -> str:
    """What is claimed, if it makes sense and follows the setup."""
    claims = decoder.claims
    if not isinstance(claims, Claims) or not isinstance(claims.limits, Limits):
        raise Mistake(f"claims is {type(claims).__name__}; it must be a specqual.contract.Claims (a value, no method)")
    unknown = sorted(set(claims.sampling) - FIELDS)
    if unknown:
        raise Mistake(f"claims.sampling names {unknown[0]!r}, which is no field of Request or Sampling")
    if setup.draft is not None and setup.rule is not Rule.NONE:
        if not claims.limits.max_draft:
            raise Mistake("a drafter was given, and claims.limits.max_draft is 0; it is K, the most drafts of a round")
        constant(make, claims, setup)
    drafts = f"{claims.method}, {claims.limits.max_draft} drafts" if claims.limits.max_draft else "no speculation"
    honoured = ", ".join(sorted(claims.sampling)) or "nothing beyond max_tokens"
    return f"{claims.engine} {claims.version}: rule {claims.rule}, {drafts}, {claims.dtype}; honours {honoured}"


def constant(make: Make, claims: Claims, setup: Setup) -> None:
    """Raise Mistake unless the claims change with speculation switched off."""
    plain = guarded(
        "make without a drafter", lambda: make(replace(setup, draft=None, draft_length=None, rule=Rule.NONE))
    )
    off = plain.claims
    guarded("close", plain.close)
    if off.limits.max_draft or off.method is not Method.NONE or off.rule is not Rule.NONE:
        raise Mistake(
            f"with draft=None and rule=none the decoder still claims rule {off.rule}, method {off.method} and "
            f"{off.limits.max_draft} drafts; compute the claims from the setup, else GE-2 has nothing to compare with"
        )


def prompt(decoder: Decoder, length: int = 3) -> tuple[int, ...]:
    """Ordinary tokens: none ends the output."""
    limits = decoder.claims.limits
    usable = [token for token in range(min(limits.vocab_size, 64)) if token not in limits.eos_ids]
    return tuple(usable[-length:])


def request_of(decoder: Decoder, length: int = LENGTH, **changes: Any) -> Request:
    return Request(prompt=prompt(decoder), max_tokens=length, **changes)


def submitted(decoder: Decoder) -> str:
    request = request_of(decoder, 1)
    ids = [guarded("submit", lambda: decoder.submit(request)) for _ in range(2)]
    for request_id in ids:
        if isinstance(request_id, bool) or not isinstance(request_id, int):
            raise Mistake(f"submit returned {request_id!r}; it must return the request's id, an int")
    if ids[0] == ids[1]:
        raise Mistake(f"submit gave the id {ids[0]} to two requests")
    listen(decoder, ids, [request, request])
    return "gives every request an id of its own"


def stepped(decoder: Decoder) -> str:
    request = request_of(decoder)
    request_id = guarded("submit", lambda: decoder.submit(request))
    (tokens,), steps = listen(decoder, [request_id], [request])
    idle = guarded("step", decoder.step)
    if idle:
        raise Mistake(f"step with nothing to do returned {idle!r}; it must return an empty list")
    return f"{len(tokens)} tokens in {steps} steps, then one Finished"


def together(decoder: Decoder) -> str:
    requests = [request_of(decoder, LENGTH + i) for i in range(3)]
    ids = [guarded("submit", lambda r=r: decoder.submit(r)) for r in requests]
    listen(decoder, ids, requests)
    return "three requests at once, each with its own events"


def cancelled(decoder: Decoder) -> str:
    room = decoder.claims.limits.max_context - 8
    request = request_of(decoder, max(1, min(64, room)))
    request_id = guarded("submit", lambda: decoder.submit(request))
    outputs, finals = {request_id: list[int]()}, dict[int, Event]()
    guarded("cancel", lambda: decoder.cancel(request_id))
    for _ in range(4):
        for event in events_of(decoder):
            known(event, outputs, finals)
            if isinstance(event, Tokens):
                outputs[request_id] += event.ids
            else:
                finals[request_id] = event
    if request_id not in finals:
        raise Mistake("no final event within four steps of cancel; it brings one Finished with the reason cancelled")
    ended(request, outputs[request_id], finals[request_id], FinishReason.CANCELLED)
    for what, other in (("an ended request", request_id), ("an unknown id", 10**9)):
        try:
            guarded("cancel", lambda other=other: decoder.cancel(other))
        except DecoderError as error:
            if isinstance(error.__cause__, KeyError):
                continue
            raise Mistake(f"cancel of {what}: {error}; it must raise KeyError") from None
        raise Mistake(f"cancel of {what} was accepted without a word; it must raise KeyError")
    return "one Finished with the reason cancelled, then silence; KeyError for what is not there"


def refused(decoder: Decoder) -> str:
    """Malformed requests, and every field that the claims do not promise to honour."""
    good, limits = request_of(decoder), decoder.claims.limits
    bad = {
        "prompt": replace(good, prompt=()),
        "prompt[0]": replace(good, prompt=(limits.vocab_size,)),
        "max_tokens": replace(good, max_tokens=0),
        "top_p": replace(good, sampling=Sampling(temperature=1.0, top_p=0.0)),
    }
    ignored = {name: asked for name, asked in unusual(good) if name not in decoder.claims.sampling}
    for requests, why in ((bad, "is malformed; call specqual.contract.validate first"), (ignored, UNCLAIMED)):
        for name, request in requests.items():
            refuse(decoder, name, request, why)
    return f"{len(bad)} malformed requests and {len(ignored)} fields that are not honoured are refused by name"


def refuse(decoder: Decoder, name: str, request: Request, why: str) -> None:
    """Raise Mistake unless this request is refused with InvalidRequest."""
    try:
        guarded("submit", lambda: decoder.submit(request))
    except InvalidRequest:
        return
    except DecoderError as error:
        raise Mistake(f"{error}; {name} {why}, so refuse it with InvalidRequest({name!r}, …)") from None
    raise Mistake(f"{name} {why}: the request was accepted without a word; raise InvalidRequest({name!r}, …)")
