"""ERR: bad requests are refused by name, and the decoder goes on serving."""

from dataclasses import replace
from math import inf, nan
from typing import Any

from specqual.conformance.chapter import clause
from specqual.conformance.drive import DecoderError, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence
from specqual.conformance.generators import greedy_requests
from specqual.conformance.lab import Lab
from specqual.conformance.ties import tie_of
from specqual.contract import InvalidRequest, Request, Unsupported, validate


def malformed(lab: Lab, good: Request) -> list[tuple[str, Request]]:
    """Requests that no decoder may accept, with what is wrong about each."""
    vocab = lab.claims.limits.vocab_size
    wrong: list[dict[str, Any]] = [
        {"prompt": ()},
        {"prompt": (*good.prompt, vocab)},
        {"prompt": (-1, *good.prompt)},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"n": 0},
        {"seed": -1},
        {"min_tokens": -1},
        {"min_tokens": good.max_tokens + 1},
        {"stop_ids": (vocab,)},
        {"stop_strings": ("",)},
        {"logprobs": -1},
    ]
    sampling: list[dict[str, Any]] = [
        {"temperature": -1.0},
        {"temperature": nan},
        {"temperature": inf},
        {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 1.5},
        {"temperature": 1.0, "top_p": nan},
        {"temperature": 1.0, "top_k": -1},
        {"temperature": 1.0, "min_p": -0.1},
        {"temperature": 1.0, "min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": nan},
        {"frequency_penalty": inf},
        {"logit_bias": ((vocab, 1.0),)},
        {"logit_bias": ((0, nan),)},
    ]
    found = [(", ".join(f"{k} = {v!r}" for k, v in c.items()), replace(good, **c)) for c in wrong]
    for change in sampling:
        what = ", ".join(f"{name} = {value!r}" for name, value in change.items())
        found.append((what, replace(good, sampling=replace(good.sampling, **change))))
    return found


def named(field: str) -> str:
    """A field as an error names it, without its index; the colon keeps `n` from being found in every word."""
    return f"{field.split('[')[0]}:"


@clause("ERR-1")
def test_malformed_requests_are_refused_by_name(lab: Lab) -> Evidence:
    good = greedy_requests(lab, "ERR-1", 1, min(8, lab.effort.span))[0]
    before = serve(lab.decoder, [good])[0].output
    cases: list[Case] = []
    for what, request in malformed(lab, good):
        field = "request"
        try:
            validate(request, lab.claims.limits)
        except InvalidRequest as error:
            field = error.field
        case = {"what": what, "field": named(field), "types": ["InvalidRequest"], "expect": "refused"}
        raised = None
        try:
            guarded("submit", lambda r=request: lab.decoder.submit(r))
        except InvalidRequest as error:
            raised = {"type": "InvalidRequest", "text": f"{named(error.field)} {error.problem}"}
        except (DecoderError, Unsupported, NotOffered) as error:
            cause = error.__cause__ or error
            raised = {"type": type(cause).__name__, "text": str(cause)}
        cases.append(case | {"raised": raised, "effect": None})
        if raised is None:
            lab.renew()  # what it makes of such a request is nobody's business
    after = serve(lab.decoder, [good])[0].output
    served = {"what": "a good request afterwards", "field": "", "types": [], "expect": "same", "raised": None}
    return Evidence("changes", [*cases, served | {"effect": before != after} | tie_of(lab, good, before, after)])


@clause("ERR-2")
def test_cancelling_what_is_not_there_is_a_key_error(lab: Lab) -> Evidence:
    done = serve(lab.decoder, greedy_requests(lab, "ERR-2", 1, 2))[0].request_id
    cases: list[Case] = []
    for what, request_id in (("an ended request", done), ("an id never given", 10**9), ("a negative id", -1)):
        raised = None
        try:
            lab.decoder.cancel(request_id)
        except Exception as error:
            raised = {"type": type(error).__name__, "text": str(error)}
        case = {"what": f"cancel {what}", "field": "", "types": ["KeyError"], "expect": "refused"}
        cases.append(case | {"raised": raised, "effect": None})
    return Evidence("changes", cases)
