"""What is malformed is refused by name, what can never fit by an event, and nobody else notices either."""

import json
from dataclasses import replace
from math import nan
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch

from specqual import fixtures
from specqual.contract import InvalidRequest, Refused, Request, Sampling, Setup, Tokens
from specqual.contract.checkpoint import open_draft, open_target
from specqual.decoder import Engine, make
from specqual.decoder.footprint import footprint

from .engines import TARGETS, UNEQUAL, alone, engine, greedy, kept, next_id, said

GOOD = greedy([1, 2, 3], 5)
MALFORMED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("prompt", {"prompt": ()}),
    ("prompt[1]", {"prompt": (1, 96)}),
    ("prompt[0]", {"prompt": ("a",)}),
    ("prompt[0]", {"prompt": (True,)}),
    ("prompt", {"prompt": None}),
    ("prompt", {"prompt": "ab"}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": 2.0}),
    ("min_tokens", {"min_tokens": 6}),
    ("n", {"n": 0}),
    ("seed", {"seed": -1}),
    ("seed", {"seed": None}),
    ("ignore_eos", {"ignore_eos": "yes"}),
    ("stop_ids[0]", {"stop_ids": (-1,)}),
    ("stop_ids", {"stop_ids": 3}),
    ("stop_strings", {"stop_strings": "end"}),
    ("stop_strings[1]", {"stop_strings": ("a", "")}),
    ("logprobs", {"logprobs": 97}),
    ("sampling", {"sampling": None}),
    ("temperature", {"sampling": Sampling(temperature=nan)}),
    ("top_k", {"sampling": Sampling(top_k=-1)}),
    ("top_p", {"sampling": Sampling(top_p=0.0)}),
    ("min_p", {"sampling": Sampling(min_p=2.0)}),
    ("logit_bias[0]", {"sampling": Sampling(logit_bias=((96, 1.0),))}),
    ("logit_bias[0]", {"sampling": Sampling(logit_bias=(3,))}),  # type: ignore[arg-type]
)


@pytest.mark.parametrize("target", TARGETS)
def test_malformed_requests_are_refused_by_name_and_a_batch_in_flight_is_bitwise_unaffected(target: str) -> None:
    decoder, ticks = engine(target, "dflash2"), list[int]()
    expected = said(decoder, UNEQUAL)

    def disturb(tick: int) -> None:
        for field, changes in MALFORMED[tick % 3 :: 3]:
            with pytest.raises(InvalidRequest) as caught:
                decoder.submit(replace(GOOD, **changes))
            assert caught.value.field == field, changes
        ticks.append(tick)

    assert said(decoder, UNEQUAL, disturb) == expected
    assert len(ticks) > 3 and decoder.submit(GOOD) == next_id(decoder) - 1 == 2 * len(UNEQUAL)  # no id was used up


def test_stop_strings_need_a_tokenizer(tmp_path: Path) -> None:
    config = {"model_type": "specqual_table", "vocab_size": 2, "context": 0, "laws": {"": ["1/2", "1/2"]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidRequest, match="stop_strings: needs a tokenizer"):
        make(Setup(target=tmp_path)).submit(greedy([1], 5, stop_strings=("a",)))


def refused(decoder: Engine, request: Request) -> str:
    request_id = decoder.submit(request)
    (event,) = [event for event in decoder.step() if not isinstance(event, Tokens)]
    assert isinstance(event, Refused) and event.request_id == request_id
    return event.error


@pytest.mark.parametrize("lag", [0, 1])
def test_what_can_never_fit_is_refused_by_an_event_and_a_batch_in_flight_is_bitwise_unaffected(lag: int) -> None:
    decoder = engine("hybrid", "dflash2", options={"pages": 60})
    wanted = [UNEQUAL[0], greedy([5] * 20, 12, n=2, sampling=Sampling(temperature=1.0))]
    expected, before = said(decoder, wanted), dict(decoder.resources())
    decoder.schedule(lag=lag)
    asked = {decoder.submit(greedy([1] * 512, 1)): "prompt", decoder.submit(greedy([1] * 400, 9)): "pool"}
    told = dict[int, list[str]]()
    step = decoder.step

    def watched() -> list[Any]:
        events = step()
        for event in events:
            if isinstance(event, Refused):
                told.setdefault(event.request_id, []).append(event.error)
        return events

    decoder.step = watched  # type: ignore[method-assign]

    def disturb(tick: int) -> None:
        asked[decoder.submit(greedy([1] * 600, 1))] = "context of 512"
        asked[decoder.submit(greedy([1] * 300, 500))] = "pages"

    assert said(decoder, wanted, disturb) == expected
    decoder.step()
    assert told.keys() == asked.keys()
    assert all(len(errors) == 1 and asked[i] in errors[0] for i, errors in told.items())
    assert all(decoder.rounds(i) == () for i in asked) and decoder.resources() == before


def test_the_end_of_the_context_ends_a_sample_and_not_the_decoder() -> None:
    decoder = engine("dense", "dflash2")
    long = greedy([1 + j % 90 for j in range(505)], 50)
    assert said(decoder, [long, GOOD]) == [*alone(kept("dense"), [long]), *alone(kept("dense"), [GOOD])]
    assert len(alone(decoder, [long])[0][0]) == 7
    assert "context" in refused(decoder, greedy([1] * 512, 1))


def test_beyond_the_context_of_its_drafter_a_request_is_served_by_the_target_alone(tmp_path: Path) -> None:
    short = Path(copytree(fixtures.path("nano/hybrid-dflash2"), tmp_path / "short"))
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 40}))
    decoder = make(Setup(target=fixtures.path("nano/hybrid"), draft=short))
    requests = [greedy([1 + j % 90 for j in range(length)], 16) for length in (30, 39, 40, 41, 100)]
    assert said(decoder, requests) == said(kept("hybrid"), requests)
    for request_id in range(len(requests)):
        drafted = [r for r in decoder.rounds(request_id) if r.proposals]
        assert all(r.start + len(r.proposals) < 40 for r in drafted) and (request_id or drafted)


@pytest.mark.parametrize("name", ["cancel", "preempt", "resume", "inspect"])
def test_unknown_and_ended_requests_are_key_errors_that_say_so(name: str) -> None:
    decoder = engine("dense", "dflash2")
    first = decoder.submit(GOOD)
    said(decoder, [GOOD])
    dead = decoder.submit(greedy([1] * 600, 1))
    for request_id in (first, dead, 10**9, -1):
        with pytest.raises(KeyError, match=f"request {request_id} is unknown or has ended"):
            getattr(decoder, name)(request_id)
    live = decoder.submit(GOOD)
    with pytest.raises(KeyError, match="sample 1 of request"):
        decoder.inspect(live, 1)


def test_ended_requests_are_forgotten_in_time() -> None:
    decoder = engine("dense", options={"remembered": 16})
    asked = [greedy([1 + i], 2) for i in range(40)]
    assert said(decoder, asked) == alone(kept("dense"), asked)
    assert [len(decoder.rounds(request_id)) for request_id in range(24, 40)] == [2] * 16
    assert len(decoder._live) + len(decoder._ended) == 16
    for request_id in (0, 23, 40):
        with pytest.raises(KeyError, match="unknown or has ended"):
            decoder.rounds(request_id)


def allocated(pool: object) -> int:
    """Bytes of all tensors of a pool, each storage once."""

    def tensors(value: object) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        return [found for part in value for found in tensors(part)] if isinstance(value, tuple | list) else []

    found = [tensor for value in vars(pool).values() for tensor in tensors(value)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}.values())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    ("target", "drafter", "options"),
    [
        ("nano/dense", None, {"pages": 30}),
        ("nano/window", "nano/window-dflash2", {"pages": 31, "samples": 3}),
        ("nano/hybrid", "nano/hybrid-dflash2", {"pages": 200, "samples": 5, "prefixes": 2}),
        ("small/hybrid", "small/hybrid-dflash2", {"pages": 500}),
    ],
)
def test_the_pools_weigh_what_the_plan_says(
    target: str, drafter: str | None, options: dict[str, int], dtype: str
) -> None:
    draft = None if drafter is None else fixtures.path(drafter)
    decoder = make(Setup(target=fixtures.path(target), draft=draft, dtype=dtype, options=options))
    config = open_target(fixtures.path(target)).config
    plan = footprint(
        config,
        None if draft is None else open_draft(draft, config).config,
        getattr(torch, dtype),
        pages=options["pages"],
        samples=options.get("samples", 16),
        prefixes=options.get("prefixes", 256),
        longest=decoder.claims.limits.max_draft,
    )
    store = decoder._store
    assert plan.bytes == pytest.approx(allocated(store.pages) + allocated(store.slots), rel=0.02)
    assert (plan.pages, plan.slots) == (store.pages.count + 1, store.slots.count)
    assert decoder.resources()["pages"] == options["pages"]
