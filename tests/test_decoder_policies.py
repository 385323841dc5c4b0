"""Policies look at shapes alone: greedy output does not see them, and the law of sampled output does not either."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from specqual import fixtures
from specqual.conformance.codelaw import DRAFTERS, LAWS, Script, code_law, table, target_joint
from specqual.contract import Event, Method, Request, Round, Rule, Sampling, SeedContract, Setup
from specqual.decoder import Engine, make
from specqual.decoder.policies import Policies, Shape, decide, padded_rows

from .engines import TARGETS, UNEQUAL, alone, engine, greedy, kept, next_id, said
from .qualification import Pair, results

EACH = (
    {"selector_rows": 3},
    {"selector_rows": 99},
    {"draft_tokens": 9},
    {"draft_context": 14},
    {"bucket": 48},
    {"selector_rows": 2, "draft_tokens": 7, "draft_context": 30, "bucket": 20},
)
WARM = Sampling(temperature=1.0)


def rounds(decoder: Engine, requests: int) -> Iterator[Round]:
    """The drafted rounds of the last requests."""
    last = next_id(decoder)
    return (r for i in range(last - requests, last) for r in decoder.rounds(i) if r.start >= 0)


def test_decisions_follow_from_shapes_alone() -> None:
    both = Policies(selector_rows=4, draft_tokens=16, draft_context=100)
    assert decide(Policies(), Shape(9, 9, 9), 7) == decide(Policies(bucket=64), Shape(1, 1, 1), 7)
    assert decide(both, Shape(3, 100, 3), 7).told == {"draft": 4, "selector": 0}
    assert decide(both, Shape(4, 100, 4), 7).told == {"draft": 3, "selector": 1}
    assert [decide(both, Shape(1, 50, tokens), 7).drafts for tokens in (1, 9, 12, 16, 40)] == [7, 7, 4, 0, 0]
    assert decide(both, Shape(1, 101, 1), 7).drafts == 0
    assert [padded_rows(Policies(), rows) for rows in (1, 16, 17)] == [16, 16, 32]
    assert [padded_rows(Policies(bucket=33), rows) for rows in (1, 48, 49)] == [48, 48, 96]


@pytest.mark.parametrize("options", EACH)
@pytest.mark.parametrize("target", TARGETS)
def test_greedy_output_is_bitwise_the_same_under_every_policy(target: str, options: dict[str, int]) -> None:
    decoder = engine(target, "dflash2", options=options)
    assert said(decoder, UNEQUAL) == said(kept(target), UNEQUAL)
    for r in rounds(decoder, len(UNEQUAL)):
        assert r.policy.keys() == {"draft" if name.startswith("draft") else name.partition("_")[0] for name in options}
        assert len(r.proposals) <= r.policy.get("draft", 4)
        if "draft_context" in options and r.start + 1 > options["draft_context"]:
            assert r.proposals == ()
        if "bucket" in options:
            assert r.policy["bucket"] % (-(-options["bucket"] // 16) * 16) == 0


def test_the_draft_length_falls_with_the_load_and_rises_again() -> None:
    decoder = engine("hybrid", "dflash2", options={"draft_tokens": 10})
    said(decoder, [greedy([1 + i, 2], 4 + 6 * i) for i in range(4)])
    lengths = [r.policy["draft"] for r in decoder.rounds(3) if r.start > 1]
    assert lengths[0] == 1 and lengths[-1] == 4 and lengths == sorted(lengths)


def test_the_rows_of_a_pass_are_padded_to_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = engine("hybrid", "dflash2")
    expected, seen = said(decoder, UNEQUAL), list[int]()
    embedded = type(decoder._target)._rest

    def counted(self: object, layer: object, x: np.ndarray, *rest: object) -> object:
        seen.append(len(x))
        return embedded(self, layer, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(type(decoder._target), "_rest", counted)
    decoder.schedule(bucket=33)
    assert said(decoder, UNEQUAL) == expected
    assert set(seen) == {r.policy["bucket"] for r in rounds(decoder, len(UNEQUAL))} == {48, 96}


def test_without_its_selector_a_drafter_drafts_from_the_plain_law_of_each_slot(tmp_path: Path) -> None:
    source = fixtures.path("nano/hybrid-dflash2")
    config = json.loads((source / "config.json").read_text())
    del config["dflash_config"]["selector_rank"], config["dflash_config"]["selector_top_k"]
    tensors = {name: t for f in source.glob("*.safetensors") for name, t in load_file(f).items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor for name, tensor in tensors.items() if "candidate_selector" not in name},
        tmp_path / "model.safetensors",
    )
    without = make(Setup(target=fixtures.path("nano/hybrid"), draft=tmp_path))
    assert without.claims.method is Method.DFLASH_CONV
    switched = engine("hybrid", "dflash2", options={"selector_rows": 2})
    for sampling in (Sampling(), WARM, Sampling(temperature=0.7, top_k=5, top_p=0.9)):
        request = greedy([4, 7, 9], 16, sampling=sampling, seed=8)
        assert alone(switched, [request]) == alone(without, [request])
        mine, theirs = (decoder.rounds(next_id(decoder) - 1) for decoder in (switched, without))
        assert [(r.proposals, r.q) for r in mine] == [(r.proposals, r.q) for r in theirs]
        assert {r.policy["selector"] for r in mine} == {0} and any(r.proposals for r in mine)
    said(switched, [greedy([4, 7, 9], 5), greedy([4, 7], 5)])
    assert {r.policy["selector"] for r in switched.rounds(next_id(switched) - 1)} == {1}


def test_a_policy_that_looks_at_neighbours_claims_what_it_keeps() -> None:
    for rule, options, contract in (
        (Rule.RATIO, {"draft_tokens": 9}, SeedContract.EQUAL_DRAFT_LENGTHS),
        (Rule.RATIO, {"selector_rows": 2}, SeedContract.NONE),
        (Rule.SAMPLER_MATCH, {"selector_rows": 2, "draft_tokens": 9}, SeedContract.ALWAYS),
    ):
        assert engine("dense", "dflash2", rule=rule, options=options).claims.seed is contract


@pytest.mark.parametrize("options", EACH[:5])
def test_sampler_match_gives_one_output_under_every_policy(options: dict[str, int]) -> None:
    requests = [greedy([3 + i, 4, 5], 12, sampling=WARM, seed=i) for i in range(3)]
    plain = engine("hybrid", rule=Rule.SAMPLER_MATCH)
    assert said(engine("hybrid", "dflash2", rule=Rule.SAMPLER_MATCH, options=options), requests) == alone(
        plain, requests
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"selector_rows": 0}, "selector_rows: must be an integer of at least 1"),
        ({"draft_tokens": "many"}, "draft_tokens: must be an integer of at least 1"),
        ({"draft_context": -1}, "draft_context: must be an integer of at least 0"),
        ({"bucket": 1.5}, "bucket: must be an integer of at least 1"),
        ({"selector": 3}, "selector: unknown option"),
    ],
)
def test_a_policy_that_is_none_is_an_error_by_name(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        engine("dense", "dflash2", options=options)


def test_a_selector_policy_needs_a_selector() -> None:
    with pytest.raises(ValueError, match="selector_rows: this drafter has no selector"):
        engine("dense", "dflash", options={"selector_rows": 2})


@dataclass
class Crowded:
    """A decoder that is never alone: every request comes with others, which draft nothing and end after two ticks."""

    engine: Engine
    others: int

    def submit(self, request: Request) -> int:
        for _ in range(self.others):
            self.engine.submit(Request(prompt=(3,), max_tokens=2))
        return self.engine.submit(request)

    def step(self) -> list[Event]:
        return self.engine.step()

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH])
def test_the_law_of_three_tokens_is_exact_while_the_load_decides_the_draft_length(tmp_path: Path, rule: Rule) -> None:
    laws = {suffix: numbers.split() for suffix, numbers in LAWS.items()}
    config = {"model_type": "specqual_table", "vocab_size": 4, "context": 1, "laws": laws}
    (tmp_path / "config.json").write_text(json.dumps(config))
    request, p, lengths = Request(prompt=(3,), max_tokens=4, sampling=WARM), table(LAWS, 3), set[int]()
    for (others, q), options in product(
        ((0, "narrow"), (1, "narrow"), (2, "narrow")), ({"draft_tokens": 5}, {"draft_context": 2})
    ):
        decoder = make(Setup(target=tmp_path, draft_length=2, rule=rule, options=options))
        found = code_law(Crowded(decoder, others), request, rule, p, Script(DRAFTERS[q], 2))
        assert found.law == pytest.approx(target_joint(p, request), abs=1e-12)
        last = [r for r in decoder.rounds(next_id(decoder) - 1) if r.start == 1]
        lengths |= {len(r.proposals) for r in last}
    assert lengths == {0, 1, 2}


@pytest.mark.parametrize(("budget", "verdict"), [(15, "EXACT"), (8, "INCONCLUSIVE")])
def test_a_seed_promises_nothing_for_rounds_whose_draft_length_the_load_has_changed(budget: int, verdict: str) -> None:
    pair, option = Pair("nano/hybrid", "nano/hybrid-dflash2"), ("--option", f"draft_tokens={budget}")
    assert results("specqual.decoder:make", pair, ["RNG-2"], 0, *option)["RNG-2"]["verdict"] == verdict


def test_the_suite_follows_every_sampled_decision_without_the_selector() -> None:
    pair, option = Pair("nano/hybrid", "nano/hybrid-dflash2"), ("--option", "selector_rows=2")
    wanted = ["LAW-2", "LAW-3", "LIVE"]
    found = results("specqual.decoder:make", pair, wanted, 0, *option, "--option", "draft_tokens=4")
    assert {"LAW-2", "LAW-3", "LIVE-1"} <= found.keys()
    assert {line["verdict"] for line in found.values()} <= {"EXACT", "TIE-EXPLAINED"}


def test_the_suite_judges_drafts_without_the_selector_by_a_drafter_without_one() -> None:
    pair = Pair("nano/hybrid", "nano/hybrid-dflash2")
    found = results("specqual.decoder:make", pair, ["DRF-1", "DRF-2"], 0, "--option", "selector_rows=2")
    assert {clause: line["verdict"].split("(")[0] for clause, line in found.items()} == {
        "DRF-1": "EXACT",
        "DRF-2": "HOLDS",
    }
