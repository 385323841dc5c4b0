"""What rounding explains: measured, narrower than a careless claim, and no cover for faults."""

from dataclasses import replace

import numpy as np
import pytest

from specqual import fixtures
from specqual.conformance.bracket import bracket, variation
from specqual.conformance.evidence import decide
from specqual.conformance.lab import Lab, Run
from specqual.conformance.rounding import DECISIONS, bound, near_ties
from specqual.contract import Greedy, Sampling, Setup
from specqual.decoder import Engine, make
from tests.qualification import Pair, results

NANO, SMALL = Pair("nano/hybrid", "nano/hybrid-dflash2"), Pair("small/hybrid", "small/hybrid-dflash2")
PASSED = {"EXACT", "HOLDS", "TIE-EXPLAINED"}


def lab(dtype: str, envelope: float = 0.0) -> Lab:
    def stated(setup: Setup) -> Engine:
        decoder = make(setup)
        decoder.claims = replace(decoder.claims, greedy=Greedy(bitwise=True, envelope=envelope))
        return decoder

    return Lab(Run("stated", stated, Setup(target=fixtures.path("nano/hybrid"), dtype=dtype)))


def test_an_envelope_covers_the_errors_that_it_was_measured_on_and_is_no_wider_than_needed():
    draw = np.random.default_rng(0)
    clusters = [draw.normal(0, 0.05, 30) for _ in range(48)]
    found = bound(clusters, "bfloat16", 1e-7)
    assert found.spread == pytest.approx(0.05, rel=0.05)
    assert max(float(np.abs(cluster).max()) for cluster in clusters) < 0.05 * 6.5 < found.nats < 0.05 * 9
    assert bound(clusters, "float32", 1e-7).nats == pytest.approx(16 * found.nats)
    assert DECISIONS >= 10_000


def test_a_spread_that_differs_between_sequences_makes_the_envelope_wider():
    draw = np.random.default_rng(0)
    even = [draw.normal(0, 0.05, 30) for _ in range(48)]
    uneven = [draw.normal(0, 0.09 if i % 4 == 0 else 0.025, 30) for i in range(48)]
    assert bound(uneven, "bfloat16", 1e-7).nats > 1.1 * bound(even, "bfloat16", 1e-7).nats


def test_only_near_ties_count_and_they_count_against_the_best():
    exact, rounded = np.array([0.0, -0.5, -3.0, -np.inf]), np.array([0.1, -0.3, 9.0, -np.inf])
    assert near_ties(exact, rounded).tolist() == pytest.approx([0.1])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wider_claim_does_not_weaken_the_suite_and_a_narrower_one_binds(dtype: str):
    measured = lab(dtype).envelope()
    assert 0 < measured < 0.6
    assert lab(dtype, envelope=16.0).envelope() == measured
    assert lab(dtype, envelope=measured / 2).envelope() == measured / 2


def test_float64_explains_nothing():
    assert lab("float64").envelope() == 1e-9


def test_a_claim_that_was_not_used_is_reported():
    line = {"output": [3], "argmax": [3], "logprob": [-0.1], "best": [-0.1], "runner_up": [-2.0], "plain": None}
    case = line | {"label": "", "max_tokens": 1, "ending": [], "envelope": 0.4, "stated": 16.0}
    assert "16 that are claimed" in decide({"kind": "greedy", "cases": [case], "guards": []}).detail


def test_tokens_at_the_edge_of_a_filter_may_be_in_or_out_within_rounding():
    logits = np.array([2.0, 1.0, 0.99, -1.0])
    near = bracket(logits, Sampling(temperature=1.0, top_k=2), 0.05)
    assert near.law[2] == 0 < near.loose[2]
    assert near.slack >= variation(0.05, 1.0) + near.loose[2] / 2
    far = bracket(logits, Sampling(temperature=1.0, top_k=2), 1e-3)
    assert far.loose[2] == 0 and far.slack == variation(1e-3, 1.0)
    for cut in ({"top_p": float(near.law[0])}, {"min_p": float(np.exp(-1.0))}):
        assert (bracket(logits, Sampling(temperature=1.0, **cut), 0.05).loose > 0).sum() > 1


def test_no_tilt_within_a_range_moves_more_mass_than_the_variation():
    draw = np.random.default_rng(1)
    for _ in range(200):
        p = draw.dirichlet(np.full(5, 0.5))
        tilted = p * np.exp(draw.choice([0.0, 0.7], 5))
        assert np.abs(tilted / tilted.sum() - p).sum() / 2 <= variation(0.7, 1.0) + 1e-12
    half = np.array([0.5, 0.5]) * np.exp([0.35, -0.35])
    p = np.array([np.exp(-0.35 / 2), np.exp(0.35 / 2)])
    p, q = p / p.sum(), (p[::-1] / p.sum())
    assert np.abs(p - q).sum() / 2 == pytest.approx(variation(0.7, 1.0)) and half.shape == p.shape


def test_the_sound_decoder_in_bfloat16_differs_by_ties_alone():
    clauses = ["GE-1", "GE-2", "GE-7", "LAW-2", "LAW-3", "LAW-4", "DRF-1", "DRF-2", "DRF-3"]
    found = results("specqual.decoder:make", NANO, clauses, 0, "--dtype", "bfloat16")
    assert {clause: line["detail"] for clause, line in found.items() if line["verdict"] not in PASSED} == {}


def test_drafts_that_rounding_tips_are_ties():
    found = results("specqual.decoder:make", SMALL, ["DRF-1"], 0, "--dtype", "bfloat16")["DRF-1"]
    assert found["verdict"] == "TIE-EXPLAINED", found["detail"]
    assert "are ties, at worst by" in found["detail"]


@pytest.mark.parametrize(
    ("fault", "clause", "pair", "profile"),
    [
        ("early_taps", "DRF-1", SMALL, "quick"),
        ("early_taps", "DRF-3", NANO, "quick"),
        ("m31c", "GE-2", NANO, "core"),
        ("noisy", "GE-7", SMALL, "quick"),
    ],
)
def test_bfloat16_is_no_excuse_for(fault: str, clause: str, pair: Pair, profile: str):
    more = ("--dtype", "bfloat16", "--profile", profile)
    line = results(f"specqual.mutants.numerics:{fault}", pair, [clause], 0, *more)[clause]
    assert line["verdict"] == "VIOLATED", line["detail"]
