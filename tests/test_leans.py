"""Leans of long outputs: gains are fair, equal arms are never accused, a shift is seen as soon as it is said to be."""

from math import log

import numpy as np
import pytest

from specqual.conformance import statistics
from specqual.conformance.kinds import leans
from specqual.conformance.longlaw import gains
from specqual.conformance.verdicts import Verdict

RUNS = 400
Outputs = np.ndarray  # the lean of each output [n]


def outputs(rng: np.random.Generator, biases: Outputs, tokens: int) -> Outputs:
    """Outputs of so many tokens, each a gain of a half up or down with the bias of its output."""
    return rng.binomial(tokens, 0.5 + biases) / tokens - 0.5


def case(on: Outputs, off: Outputs, allowed: float = 0.0, alpha: float = 1e-6, wanted: float = 0.05) -> dict:
    found = {"label": "lean left", "on": on.tolist(), "off": off.tolist(), "allowed": [allowed] * len(on)}
    return found | {"alpha": alpha, "wanted": wanted}


def as_rare_as_promised(wrong: int, alpha: float) -> bool:
    return wrong <= alpha * RUNS or statistics.binomial_tail(RUNS, wrong, alpha) > 1e-4


def test_every_gain_has_mean_zero_under_the_law_it_bets_on():
    rng = np.random.default_rng(1)
    for _ in range(20):
        p, q = rng.dirichlet([0.4] * 6), rng.dirichlet([0.4] * 6)
        found = [gains(p, q, token, v) for token in range(6) for v in (0.25, 0.75)]
        for lean in found[0]:
            assert sum(p[i // 2] / 2 * gain[lean] for i, gain in enumerate(found)) == pytest.approx(0, abs=1e-12)
            assert all(-1 <= gain[lean] <= 1 for gain in found)
    assert "to the draft" not in gains(p, None, 0, 0.5)


# equal arms


def constant(rng: np.random.Generator) -> tuple[Outputs, Outputs]:
    """Every output has a bias of a tenth to one side or the other, the same from its first token to its last."""
    return tuple(outputs(rng, rng.choice([-0.1, 0.1], 120), 192) for _ in range(2))


def clustered(rng: np.random.Generator) -> tuple[Outputs, Outputs]:
    """Prompts lean as they like, later ones further; both outputs of a prompt do."""
    biases = rng.normal(0, 0.1, 120).clip(-0.3, 0.3) + np.linspace(0, 0.15, 120)
    return outputs(rng, biases, 24), outputs(rng, biases, 24)


def rare(rng: np.random.Generator) -> tuple[Outputs, Outputs]:
    """One output in ten is nothing but its likeliest token, in either arm."""
    return tuple(outputs(rng, np.where(rng.random(120) < 0.1, 0.5, 0.0), 48) for _ in range(2))


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("null", [constant, clustered, rare])
def test_arms_of_one_law_are_accused_no_oftener_than_promised_however_their_outputs_lean(null, alpha):
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(RUNS):
        on, off = null(rng)
        wrong += leans.decide([case(on, off, alpha=alpha), case(-on, -off, alpha=alpha)]).verdict is Verdict.VIOLATED
    assert as_rare_as_promised(wrong, alpha)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_an_arm_that_rounding_moves_as_far_as_it_may_is_accused_no_oftener_than_promised(alpha):
    """Both arms lean on their own; every token of one is as much likelier to lean further as rounding explains."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(RUNS):
        biases = rng.choice([-0.1, 0.1], (2, 120))
        on, off = outputs(rng, biases[0] + 0.02, 96), outputs(rng, biases[1], 96)
        wrong += leans.decide([case(on, off, 0.02, alpha)]).verdict is Verdict.VIOLATED
    assert as_rare_as_promised(wrong, alpha)


def test_the_mean_difference_lies_within_its_bounds_as_often_as_promised_though_few_outputs_make_it():
    rng, alpha, wrong = np.random.default_rng(4), 0.05, 0
    for _ in range(RUNS):
        found = case(outputs(rng, np.where(rng.random(400) < 0.03, 0.4, 0.0), 96), outputs(rng, np.zeros(400), 96))
        (state,) = leans.states([found])
        low, high = leans.ends(state, 2 * alpha, 1)
        wrong += not low <= 0.03 * 0.4 <= high
    assert as_rare_as_promised(wrong, alpha)


# unequal ones


@pytest.mark.parametrize(("pairs", "tokens"), [(160, 96), (800, 48)])
def test_a_shift_that_is_called_visible_is_seen_nine_times_in_ten_and_half_of_it_hardly_ever(pairs, tokens):
    rng = np.random.default_rng(5)
    even = [outputs(rng, np.zeros(pairs), tokens) for _ in range(2)]
    visible = leans.sighted([case(*even)])

    def power(bias: float) -> float:
        runs = ([outputs(rng, np.full(pairs, b), tokens) for b in (bias, 0.0)] for _ in range(200))
        return np.mean([leans.decide([case(*arms)]).verdict is Verdict.VIOLATED for arms in runs])

    assert power(visible) > 0.84 and power(visible / 2) < 0.1
    theory = np.sqrt((2 * log(2 * 2 / 1e-6) + 3) * (0.25 / tokens * 2) / pairs)  # mean² n / 2 variance nats, and power
    assert theory < visible < 1.6 * theory


def test_a_bias_of_both_arms_is_tolerated_and_the_same_bias_of_one_of_them_is_not():
    rng = np.random.default_rng(6)
    one, other, fair = (outputs(rng, np.full(2_000, bias), 96) for bias in (0.1, 0.1, 0.0))
    assert leans.decide([case(one, other)]).verdict is Verdict.HOLDS
    seen = leans.decide([case(one, fair), case(fair, other)])
    assert seen.verdict is Verdict.VIOLATED and "lean left by 0.0998" in seen.detail
    assert leans.decide([case(one, fair, 0.15, wanted=0.2)]).verdict is Verdict.HOLDS  # rounding explains it all


def test_few_outputs_that_go_all_wrong_are_seen_among_many_that_are_right():
    rng = np.random.default_rng(7)
    wrong = outputs(rng, np.where(rng.random(2_000) < 0.03, 0.4, 0.0), 192)
    assert leans.decide([case(wrong, outputs(rng, np.zeros(2_000), 192))]).verdict is Verdict.VIOLATED


def test_enough_pairs_hold_and_too_few_say_how_many_more_are_needed():
    rng = np.random.default_rng(8)

    def decided(pairs: int):
        return leans.decide([case(*(outputs(rng, np.zeros(pairs), 96) for _ in range(2)))])

    few = decided(300)
    assert few.verdict is Verdict.INCONCLUSIVE
    more = float(few.detail.split("about ")[1].split(" more requests")[0])
    assert decided(int(1.1 * (300 + more))).verdict is Verdict.HOLDS
    assert decided(int(0.8 * (300 + more))).verdict is Verdict.INCONCLUSIVE
    apart = case(outputs(rng, np.full(50, 0.2), 4), outputs(rng, np.zeros(50), 4))
    assert "would not settle it" in leans.decide([apart]).detail
    assert "no lean, however strong" in decided(10).detail


def test_arms_of_unequal_length_are_malformed():
    with pytest.raises(ValueError, match="shorter"):
        leans.decide([case(np.zeros(5), np.zeros(4))])
    with pytest.raises(ValueError, match="pairs in"):
        leans.decide([case(np.full(5, 3.0), np.zeros(5))])
    assert leans.decide([]).verdict is leans.decide([case(np.zeros(0), np.zeros(0))]).verdict is Verdict.INCONCLUSIVE
