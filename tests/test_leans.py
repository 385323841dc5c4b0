"""Leans of long outputs: gains are fair, envelopes tolerate, bets and intervals see what goes beyond."""

import numpy as np
import pytest

from specqual.conformance import statistics
from specqual.conformance.kinds import leans
from specqual.conformance.longlaw import Arm, case, gains
from specqual.conformance.statistics import Bets
from specqual.conformance.verdicts import Verdict

RUNS = 400


def arm(gained: list[float], allowed: float = 0.0) -> Arm:
    found = Arm(Bets(), Bets(allowed), Bets(allowed))
    for gain in gained:
        found.see(gain, 0.0)
    return found


def coins(rng: np.random.Generator, bias: float, tokens: int) -> list[float]:
    return (np.where(rng.random(tokens) < 0.5 + bias, 0.5, -0.5)).tolist()


def decided(off: list[float] | None, on: list[float], alpha: float = 1e-6, wanted: float = 0.05):
    before = arm(off) if off is not None else None
    allowed = leans.reach(before.plain if before else None, alpha, 1)
    return leans.decide([case("left", arm(on, allowed), before, alpha, wanted, {})])


def test_every_gain_has_mean_zero_under_the_law_it_bets_on():
    rng = np.random.default_rng(1)
    for _ in range(20):
        p, q = rng.dirichlet([0.4] * 6), rng.dirichlet([0.4] * 6)
        found = [gains(p, q, token, v) for token in range(6) for v in (0.25, 0.75)]
        for lean in found[0]:
            assert sum(p[i // 2] / 2 * gain[lean] for i, gain in enumerate(found)) == pytest.approx(0, abs=1e-12)
            assert all(-1 <= gain[lean] <= 1 for gain in found)
    assert "to the draft" not in gains(p, None, 0, 0.5)


def test_a_bias_that_the_plain_arm_has_too_is_tolerated_and_the_same_bias_of_the_drafting_arm_is_not():
    rng = np.random.default_rng(2)
    both = decided(coins(rng, 0.1, 20_000), coins(rng, 0.1, 20_000))
    alone = decided(coins(rng, 0.0, 20_000), coins(rng, 0.1, 20_000))
    unknown = decided(None, coins(rng, 0.1, 20_000))
    assert both.verdict is Verdict.INCONCLUSIVE and "would not do" in both.detail  # beyond what is wanted, both of them
    assert (alone.verdict, unknown.verdict) == (Verdict.VIOLATED, Verdict.VIOLATED)


def test_enough_tokens_hold_and_too_few_say_how_many_more_are_needed():
    rng = np.random.default_rng(3)
    few, many = (decided(coins(rng, 0.0, n), coins(rng, 0.0, n)) for n in (2_000, 60_000))
    assert many.verdict is Verdict.HOLDS and many.delta < 0.05
    assert few.verdict is Verdict.INCONCLUSIVE and "more tokens would settle it" in few.detail


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_equal_arms_are_accused_no_oftener_than_promised_though_tokens_of_a_request_are_alike(alpha):
    """Biases drift from request to request, in both arms alike: eight requests of sixteen tokens, each with its own."""
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(RUNS):
        sides = [[g for b in rng.choice([-0.05, 0.05], 8) for g in coins(rng, b, 16)] for _ in range(2)]
        wrong += decided(*sides, alpha=alpha).verdict is Verdict.VIOLATED
    assert statistics.binomial_tail(RUNS, wrong, alpha) > 1e-4 or wrong < alpha * RUNS


def test_bets_that_allow_for_less_than_the_envelope_are_malformed():
    rng = np.random.default_rng(5)
    off, on = arm(coins(rng, 0.0, 500)), arm(coins(rng, 0.3, 500))
    with pytest.raises(ValueError, match="envelope"):
        leans.decide([case("left", on, off, 1e-6, 0.05, {})])
