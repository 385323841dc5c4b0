"""Whole rounds of the decoder of a device, on the definitions of its kernels: those of the host."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from .twins import DEVICE, run_definitions  # isort: split

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


def compare(target: str, draft: str, rule: Rule, requests: Sequence[Request]) -> None:
    """Drafts, their q, acceptance and tokens on the device beside those of the host."""
    found, expected = (rounds(decoder(target, draft, rule, device), requests) for device in (WHERE, "cpu"))
    assert bare(found) == bare(expected)
    assert any(one.accepted for one in found) and any(one.accepted < len(one.proposals) for one in found)
    for one, other in zip(found, expected, strict=True):
        for q, law in zip(one.q, other.q, strict=True):
            alike(q, law)


RULES = [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("draft", ["dense-dflash2", "dense-dflash", "hybrid-markov", "window-selector"])
def test_rounds_on_the_definitions_of_kernels_are_those_of_the_host(
    draft: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_definitions(monkeypatch)
    target = f"nano/{draft.partition('-')[0]}"
    compare(target, f"nano/{draft}", rule, [replace(one, max_tokens=4 * one.max_tokens) for one in MIXED])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_judging_where_the_logits_lie_changes_no_round(dtype: str, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    run_definitions(monkeypatch)
    there, here = (decoder("nano/dense", "nano/dense-dflash2", rule, WHERE, dtype=dtype) for _ in range(2))
    here._judge = None
    requests = [replace(one, max_tokens=4 * one.max_tokens) for one in MIXED]
    assert rounds(there, requests) == rounds(here, requests)


@pytest.mark.parametrize("rule", RULES)
def test_a_neighbour_changes_nothing_whoever_judges_it(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    run_definitions(monkeypatch)
    pair = "nano/hybrid", "nano/hybrid-dflash2"
    together = rounds(decoder(*pair, rule, WHERE), MIXED)
    for place, one in enumerate(MIXED):
        alone = rounds(decoder(*pair, rule, WHERE), [one])
        mine = [replace(found, request_id=0) for found in together if found.request_id == place]
        assert sorted(mine, key=order) == sorted(alone, key=order)


def order(one: Round) -> tuple[int, int]:
    return one.sample, one.start


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


@pytest.mark.parametrize("rule", RULES)
def test_scripted_drafts_are_judged_as_the_host_judges_them_and_illegal_ones_are_none(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_definitions(monkeypatch)
    found = []
    for device in (WHERE, "cpu"):
        engine = decoder("nano/dense", None, rule, device, draft_length=3)
        engine.script(scripted)
        found.append(rounds(engine, [replace(one, max_tokens=12) for one in MIXED]))
    assert bare(found[0]) == bare(found[1])
    assert any(one.proposals for one in found[0])
