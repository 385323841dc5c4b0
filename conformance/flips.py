"""Flips of greedy tokens: what one arm says against what the engine says without speculation, prefix by prefix."""

from collections.abc import Sequence
from dataclasses import replace

from specqual.contract import Decoder, Request

from .drive import Answer, serve
from .evidence import Case
from .greedy import case_of
from .hazards import batch
from .kinds import parting
from .lab import Lab

GROUP = 8  # requests served together


def batches(lab: Lab, requests: Sequence[Request], decoder: Decoder) -> list[tuple[Answer, ...]]:
    """The answers to requests in groups, as far as the decoder serves several at once."""
    size = max(1, min(GROUP, decoder.claims.limits.max_batch))
    return [batch(lab, requests[i : i + size], decoder) for i in range(0, len(requests), size)]


def flips(plain: Decoder, answer: Answer) -> list[int]:
    """The places of output tokens that are not what this decoder, asked alone, says behind the tokens before.

    It is asked anew behind each of them, so that nothing ends at the first. An output that only ends elsewhere has
    none there.
    """
    request, output, found, start = answer.request, answer.output, list[int](), 0
    while start < len(output):
        rest = replace(request, prompt=(*request.prompt, *output[:start]), max_tokens=len(output) - start)
        apart = parting(serve(plain, [rest])[0].output, output[start:])
        if apart is None:
            break
        found.append(start + apart)
        start += apart + 1
    return found


def arm_of(lab: Lab, name: str, groups: Sequence[Sequence[Answer]], alpha: float) -> list[Case]:
    """The judged outputs of one arm, flips not yet looked for."""
    batched = max(map(len, groups))
    more = {
        "arm": name,
        "spread": lab.rounding().tips,
        "sides": 2,  # both sides are the engine's
        "against": "the engine without speculation",
        "alpha": alpha,
        "batch": batched,
        "dtype": lab.claims.dtype,
        "flips": [],
    }
    label = {"on": f"configured drafter, batches of {batched}", "off": f"speculation off, batches of {batched}"}[name]
    answers = [answer for group in groups for answer in group]
    return [case_of(lab, answer, label=label, envelope=lab.envelope()) | more for answer in answers]
