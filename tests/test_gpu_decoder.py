"""The decoder on its kernels, in Triton's interpreter where there is no GPU: what the host says, token for token."""

from pathlib import Path
from typing import Any

import pytest
import torch

from .interpreter import DEVICE  # isort: split

from specqual import fixtures
from specqual.contract import Request, Round, Rule, Sampling, Setup, Tokens
from specqual.decoder import make
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Memory
from specqual.decoder.span import Span

from .device.bitwise import Campaign, campaign

WHERE = "cuda" if DEVICE == "cuda" else "interpreter"
REQUESTS = [
    Request(prompt=(3, 9, 4), max_tokens=4, sampling=Sampling(temperature=0.0), ignore_eos=True),
    Request(prompt=(17, 5), max_tokens=3, sampling=Sampling(temperature=0.9, top_k=12), seed=7, ignore_eos=True),
]


def decoder(target: str, draft: str | None, device: str, **options: str) -> Engine:
    found = None if draft is None else Path(fixtures.path(draft))
    rule = Rule.NONE if draft is None else Rule.RATIO
    return make(
        Setup(target=Path(fixtures.path(target)), draft=found, rule=rule, options={"device": device, **options})
    )


@pytest.mark.parametrize(
    ("dtype", "options", "field"),
    [("float64", {}, "dtype"), (None, {"invariant": 0}, "invariant")],
)
def test_what_the_kernels_do_not_have_is_refused_by_field(
    dtype: str | None, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match=f"^{field}: must be .* on device {WHERE}"):
        make(Setup(target=Path(fixtures.path("nano/dense")), dtype=dtype, options=options | {"device": WHERE}))


@pytest.mark.parametrize(
    ("device", "dtype", "problem"),
    [("cpu", "bfloat16", "needs device cuda"), ("interpreter", "bfloat16", "needs device cuda")],
)
def test_flash_attention_is_refused_where_it_cannot_run(device: str, dtype: str, problem: str) -> None:
    options = {"device": device, "attention": "flash"}
    with pytest.raises(ValueError, match=f"^attention: flash {problem}"):
        make(Setup(target=Path(fixtures.path("nano/dense")), dtype=dtype, options=options))


def test_a_librarys_attention_says_the_same_here_and_promises_no_bits() -> None:
    torchs = decoder("nano/dense", "nano/dense-dflash", WHERE, attention="sdpa")
    own = decoder("nano/dense", "nano/dense-dflash", "cpu")
    assert not torchs.claims.greedy.bitwise and torchs.claims.attention == "sdpa"
    assert own.claims.greedy.bitwise
    assert said(torchs) == said(own)


def said(engine: Engine) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """The outputs, and the drafts of each round, made and accepted."""
    ids = [engine.submit(request) for request in REQUESTS]
    outputs: dict[int, list[int]] = {request_id: [] for request_id in ids}
    while any(len(outputs[i]) < request.max_tokens for i, request in zip(ids, REQUESTS, strict=True)):
        for event in engine.step():
            if isinstance(event, Tokens):
                outputs[event.request_id] += event.ids
    rounds: list[Round] = [one for request_id in ids for one in engine.rounds(request_id)]
    return list(outputs.values()), [(len(one.proposals), one.accepted) for one in rounds]


@pytest.mark.parametrize(
    ("target", "draft"), [("nano/hybrid", "nano/hybrid-dflash2"), ("nano/window", None)], ids=["drafts", "plain"]
)
def test_the_kernels_say_what_the_host_says(target: str, draft: str | None) -> None:
    assert said(decoder(target, draft, WHERE)) == said(decoder(target, draft, "cpu"))


def test_a_state_that_is_marked_inside_of_a_span_is_kept_and_changes_no_bit() -> None:
    engine, ids, place = decoder("nano/hybrid", None, WHERE), (3, 9, 4, 7, 5), 3
    target, store = engine._target, engine._store

    def memory(end: int) -> Memory:
        found = store.take(store.most_pages(end, end))
        assert found is not None
        store.extend(found, target.streams, end)
        return found

    slot, short, whole = store.slots.take(), memory(place), memory(len(ids))
    assert slot is not None and short.slot is not None
    cut = target.forward([Span(ids, 0, memory(len(ids)), len(ids), 1, (place, slot))], store)
    target.forward([Span(ids[:place], 0, short, place, 0)], store)
    for layer in store.slots.layers:
        kept, expected = (store.slots.folded(one, layer, place, 0) for one in (slot, short.slot))
        assert torch.equal(kept[0], expected[0]) and torch.equal(kept[1], expected[1])
        assert kept[0].any()
    assert torch.equal(cut.logits[0], target.forward([Span(ids, 0, whole, len(ids), 1)], store).logits[0])


def test_a_state_that_is_looked_at_has_the_bits_that_the_next_pass_gives_it() -> None:
    engine, ids, certain = decoder("nano/hybrid", None, WHERE), (3, 9, 4, 7, 5), 3
    target, store = engine._target, engine._store
    memories = store.take(store.most_pages(len(ids), len(ids))), store.take(store.most_pages(len(ids), len(ids)))
    for memory in memories:
        assert memory is not None
        store.extend(memory, target.streams, len(ids))
    logged, whole = memories
    target.forward([Span(ids[:certain], 0, logged, certain, 1)], store)
    logged.length = certain
    target.forward([Span(ids, certain, logged, 0, 1)], store)
    target.forward([Span(ids, 0, whole, len(ids), 1)], store)
    for layer in store.slots.layers:
        state, history = store.slots.folded(logged.slot, layer, len(ids), len(ids) - certain)
        expected = store.slots.folded(whole.slot, layer, len(ids), 0)
        assert torch.equal(state, expected[0]) and torch.equal(history, expected[1])


def test_a_campaign_runs_on_the_kernels() -> None:
    pair = {name: fixtures.path(f"nano/dense{end}") for name, end in (("target", ""), ("draft", "-dflash"))}
    asked = Setup(**pair, options={"device": WHERE})
    seen = campaign(Campaign(asked, tokens=3, block=3, prompt=3, longest=4))
    assert seen.difference is None and seen.tokens >= 3, seen
