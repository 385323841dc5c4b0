"""Engines that promise no bits: near ties may flip, and no more of them than rounding flips."""

from math import exp, log

import numpy as np
import pytest

from specqual import fixtures
from specqual.conformance.chapter import Result
from specqual.conformance.check import run
from specqual.conformance.evidence import decide
from specqual.conformance.kinds.flips import RARE, against, chance, visible
from specqual.conformance.lab import Run
from specqual.contract import Make, Rule
from specqual.decoder import make
from specqual.mutants.lenient import m04l
from specqual.mutants.pairs import BF16, LOOSE
from specqual.mutants.planting import black_box
from specqual.reference import make as reference

SPREAD = 0.05  # nats


def judged(decoder: Make, pair=LOOSE, **more) -> Result:
    (found,) = run(Run("engine", decoder, pair.setup, **more), ["GE-8"])
    return found


def test_a_sound_engine_that_promises_no_bits_is_token_equal_up_to_ties_at_a_stated_length_batch_and_dtype():
    found = judged(make)
    assert found.verdict in ("EXACT", "TIE-EXPLAINED"), found.detail
    for said in ("over 192 tokens of 16 requests", "length up to 45, batch 8, dtype bfloat16", "rate below 0.016"):
        assert said in found.detail
    assert "between two runs without it" in found.detail and found.detail.endswith("seen by scores and a trace")


def test_lenient_acceptance_within_the_envelope_is_seen_from_outside_by_its_flips():
    found = judged(black_box(m04l))
    assert found.verdict == "VIOLATED" and found.detail.endswith("seen by events alone"), found.detail
    assert all(regret <= case["envelope"] for case in found.evidence["cases"] for regret in regrets(case))


def regrets(case):
    return [best - own for best, own in zip(case["best"], case["logprob"], strict=True)]


def test_without_batches_and_without_drafts_that_stay_the_clause_is_open():
    found = judged(make, without=frozenset({"batches"}))
    assert found.verdict == "INCONCLUSIVE" and "beside another (0 of 1)" in found.detail


def test_a_claim_of_bits_and_a_decoder_without_drafter_leave_nothing_to_explain():
    assert judged(make, BF16).verdict == "SKIPPED"
    plain = LOOSE.setup.__class__(target=fixtures.path("nano/dense"), rule=Rule.NONE)
    (found,) = run(Run("reference", reference, plain), ["GE-8"])
    assert found.verdict == "SKIPPED" and "drafter" in found.detail


def drawn(draw, tokens: int, noise: float, arm: str = "on", apart: float = 0.0):
    """A request as evidence: rows of eight scores, tipped by rounding and by something `apart` that is more."""
    logits = draw.normal(0.0, 2.0, (tokens, 8))
    said = (logits + draw.normal(0.0, (noise**2 + apart**2) ** 0.5 / 2**0.5, logits.shape)).argmax(1)
    logp = np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    ordered = np.sort(logp, axis=1)
    case = {"label": "", "prompt": [1], "max_tokens": tokens, "ending": [], "output": said.tolist()}
    case |= {"argmax": logp.argmax(1).tolist(), "logprob": logp[range(tokens), said].tolist()}
    case |= {"best": ordered[:, -1].tolist(), "runner_up": ordered[:, -2].tolist(), "envelope": 9.0, "arm": arm}
    case |= {"flips": np.flatnonzero(said != logp.argmax(1)).tolist(), "spread": SPREAD, "sides": 1, "alpha": 1e-7}
    return case | {"against": "the other", "batch": 1, "dtype": "bfloat16"}


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_rounding_alone_is_hardly_ever_too_much(alpha: float):
    draw, runs = np.random.default_rng(0), 300
    won = [against(cases, [case["flips"] for case in cases]) for cases in many(draw, runs)]
    assert sum(value >= -log(alpha) for value in won) <= alpha * runs
    assert np.mean(np.exp(won)) < 1.2


def many(draw, runs: int):
    for _ in range(runs):
        yield [drawn(draw, 12, SPREAD) for _ in range(8)]


def test_a_request_in_which_everything_is_further_off_is_not_enough():
    """Tokens of one request share their past: however many of them flip, they are one request's."""
    draw = np.random.default_rng(1)
    cases = [drawn(draw, 24, SPREAD) for _ in range(15)] + [drawn(draw, 24, SPREAD, apart=4 * SPREAD)]
    assert against(cases, [case["flips"] for case in cases]) < -log(1e-7)


def test_the_chance_of_a_flip_is_an_upper_bound_among_several_near_ties():
    draw = np.random.default_rng(2)
    for others in (1, 3, 6):
        logits = np.array([0.0, *[-0.12] * others, -3.0])
        flipped = (logits + draw.normal(0, SPREAD / 2**0.5, (40_000, len(logits)))).argmax(1) != 0
        logp = logits - np.log(np.exp(logits).sum())
        bound = chance(logp[0], logp[1], SPREAD, 1)
        assert flipped.mean() <= bound <= 4 * flipped.mean()
    assert chance(-0.1, -3.0, 0.0, 2) == 0.0 and chance(-0.7, -0.7, SPREAD, 2) == 1.0


def arms(apart: float, beside: float):
    draw = np.random.default_rng(3)
    return [drawn(draw, 24, SPREAD, arm, more) for arm, more in (("on", apart), ("off", beside)) for _ in range(16)]


def test_more_flips_than_rounding_explains_are_speculations_fault_only_where_it_is_to_blame():
    def said(cases):
        return decide({"kind": "flips", "cases": cases, "guards": []})

    assert said(arms(0, 0)).verdict == "TIE-EXPLAINED"
    found = said(arms(6 * SPREAD, 0))
    assert found.verdict == "VIOLATED" and found.place in arms(6 * SPREAD, 0)[found.case]["flips"]
    alike = said(arms(6 * SPREAD, 6 * SPREAD))
    assert alike.verdict == "INCONCLUSIVE" and "with and without speculation" in alike.detail


def test_an_engine_that_rounds_more_than_its_dtype_is_not_accused_of_what_it_does_without_speculation_too():
    draw, said = np.random.default_rng(6), list[str]()
    for _ in range(30):
        cases = [drawn(draw, 24, SPREAD, arm, 3 * SPREAD) for arm in ("on", "off") for _ in range(64)]
        said.append(decide({"kind": "flips", "cases": cases, "guards": []}).verdict)
    assert set(said) == {"INCONCLUSIVE"}
    cases = [drawn(draw, 24, SPREAD, arm, more * SPREAD) for arm, more in (("on", 9), ("off", 2)) for _ in range(64)]
    assert decide({"kind": "flips", "cases": cases, "guards": []}).verdict == "VIOLATED"


@pytest.mark.parametrize("kind", ["greedy", "flips"])
def test_a_tie_that_the_engines_own_scores_call_none_is_left_open(kind: str):
    case = drawn(np.random.default_rng(4), 24, 4 * SPREAD) | {"plain": None, "bitwise": False}
    place = case["flips"][0]
    for own, verdict in ((0.2, "TIE-EXPLAINED"), (13.0, "INCONCLUSIVE")):
        found = decide({"kind": kind, "cases": [case | {"own": [[place, own]]}], "guards": []})
        assert found.verdict == verdict, found.detail
    assert found.place == place and "none in the engine's own scores" in found.detail


def test_the_stated_number_of_surprising_requests_is_the_smallest_that_is_too_many():
    cases = [drawn(np.random.default_rng(5), 24, 0.0) for _ in range(16)]
    enough = visible(cases, 1e-7)
    assert enough is not None and 1 < enough < 8
    first = [next(i for i, b in enumerate(c["best"]) if chance(b, c["runner_up"][i], SPREAD, 1) <= RARE) for c in cases]
    for count, rejected in ((enough - 1, False), (enough, True)):
        flipped = [[first[i]] if i < count else [] for i in range(16)]
        assert (against(cases, flipped) >= -log(1e-7)) is rejected
    assert visible(cases[:1], 1e-7) is None and exp(against(cases[:1], [[]])) <= 1
