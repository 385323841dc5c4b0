"""Whole rounds of the decoder on its kernels, in Triton's interpreter where there is no GPU: those of the host."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from .interpreter import DEVICE  # isort: split

from specqual import fixtures
from specqual.contract import CompactLaw, Finished, Proposal, Request, Round, Rule, Sampling, ScriptContext, Setup
from specqual.decoder import make
from specqual.decoder.engine import Engine

WHERE = "cuda" if DEVICE == "cuda" else "interpreter"
PENALTY = {"repetition_penalty": 1.3, "presence_penalty": 0.5}


def request(place: int, tokens: int, sampling: dict[str, Any], **changes: Any) -> Request:
    prompt = (3 + place, 9, *range(place))
    return Request(
        prompt=prompt, max_tokens=tokens, sampling=Sampling(**sampling), seed=place, ignore_eos=True, **changes
    )


MIXED = [
    request(0, 5, {}),
    request(1, 4, {"temperature": 0.9, "top_k": 12}, n=2),
    request(2, 4, {"temperature": 1.2, "top_p": 0.8, "min_p": 0.01}),
    request(3, 4, {"temperature": 0.8} | PENALTY),
    request(4, 3, PENALTY, logprobs=1),
]
FEW = [MIXED[0], MIXED[2], MIXED[3]]


def decoder(target: str, draft: str | None, rule: Rule, device: str, **changes: Any) -> Engine:
    found = None if draft is None else fixtures.path(draft)
    return make(Setup(target=fixtures.path(target), draft=found, rule=rule, options={"device": device}, **changes))


def rounds(engine: Engine, requests: Sequence[Request]) -> list[Round]:
    """Those of all requests, served together."""
    live = {engine.submit(one) for one in requests}
    ids = sorted(live)
    while live:
        live -= {event.request_id for event in engine.step() if isinstance(event, Finished)}
    return [one for request_id in ids for one in engine.rounds(request_id)]


def bare(found: Sequence[Round]) -> list[tuple[Any, ...]]:
    """What was drafted, accepted and committed where, without q."""
    return [(one.request_id, one.sample, one.start, one.proposals, one.accepted, one.committed) for one in found]


def alike(one: CompactLaw | None, other: CompactLaw | None) -> None:
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.ids == other.ids
        np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "draft", "rule", "requests"),
    [
        ("nano/hybrid", "nano/hybrid-dflash2", Rule.RATIO, MIXED),
        ("nano/window", "nano/window-dflash2", Rule.SAMPLER_MATCH, FEW),
        ("nano/dense", "nano/dense-dflash", Rule.ONE_HOT, FEW),
        ("nano/dense", "nano/dense-markov", Rule.RATIO, FEW),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_rounds_are_those_of_the_host(target: str, draft: str, rule: Rule, requests: Sequence[Request]) -> None:
    found, expected = (rounds(decoder(target, draft, rule, device), requests) for device in (WHERE, "cpu"))
    assert bare(found) == bare(expected)
    assert any(one.accepted for one in found) and any(one.accepted < len(one.proposals) for one in found)
    for one, other in zip(found, expected, strict=True):
        for q, law in zip(one.q, other.q, strict=True):
            alike(q, law)


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.SAMPLER_MATCH])
def test_judging_where_the_logits_lie_changes_no_round(rule: Rule) -> None:
    there, here = (decoder("nano/dense", "nano/dense-dflash2", rule, WHERE, dtype="bfloat16") for _ in range(2))
    here._judge = None
    assert rounds(there, FEW) == rounds(here, FEW)


def scripted(context: ScriptContext) -> Proposal:
    """Good drafts and illegal ones, by turns."""
    last, size, most = context.tokens[-1], 95, context.max_draft
    wide = CompactLaw(tuple(range(70)), (1 / 70,) * 70)
    narrow = CompactLaw((last, (last + 1) % size), (0.5, 0.5))
    certain = tuple((last + place) % size for place in range(most))
    offers = [
        Proposal.certain(certain),
        Proposal((last,), (narrow,)),
        Proposal((5,), (wide,)),
        Proposal.certain((*certain, 1)),
        Proposal.certain((-1,)),
        Proposal((last,), (CompactLaw((last,), (float("nan"),)),)),
        Proposal((3,), (CompactLaw((last + 4,), (1.0,)),)),
    ]
    return offers[(context.round_index + context.request_id) % len(offers)]


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT])
def test_scripted_drafts_are_judged_as_the_host_judges_them_and_illegal_ones_are_none(rule: Rule) -> None:
    found = []
    for device in (WHERE, "cpu"):
        engine = decoder("nano/dense", None, rule, device, draft_length=3)
        engine.script(scripted)
        found.append(rounds(engine, [MIXED[0], MIXED[1], MIXED[2]]))
    assert found[0] == found[1]
    assert any(one.proposals for one in found[0])
