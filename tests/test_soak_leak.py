"""Memory that grows is found, and what only fluctuates is not called growth."""

from random import Random

import pytest

from specqual.conformance.verdicts import Verdict
from specqual.soak import leak

REQUESTS = [40.0 * place for place in range(400)]  # 16,000 in all


def life(slope: float, noise: float = 0.0, seed: int = 0) -> list[tuple[float, float]]:
    """A process that takes 300 MB, 50 more in its warm-up, and then so many MB per 10,000 requests."""
    chance = Random(seed)
    return [(n, 300 + 50 * min(n / 1500, 1) + slope * n / leak.PER + chance.uniform(-noise, noise)) for n in REQUESTS]


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_flat_series_holds_behind_its_warm_up(noise):
    found = leak.growth([life(0.0, noise)])
    assert found.verdict is Verdict.HOLDS and found.delta <= leak.BOUND


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_growth_beyond_the_bound_is_seen_through_noise(noise):
    found = leak.growth([life(0.0), life(9.0, noise)])
    assert found.verdict is Verdict.VIOLATED and found.detail.startswith(("memory grows by 9", "memory grows by 8.9"))


def test_steps_to_the_largest_batch_so_far_are_no_leak():
    """Ten steps of six megabytes, ever rarer, as an allocator takes them."""
    steps = [2_100 * 1.2**k for k in range(10)]
    points = [(n, mb + 6 * sum(n > step for step in steps)) for n, mb in life(0.0)]
    assert leak.growth([points]).verdict is not Verdict.VIOLATED


def test_a_noisy_series_and_a_short_one_stay_open():
    assert leak.growth([life(0.0, 60.0)]).verdict is Verdict.INCONCLUSIVE
    assert leak.growth([life(9.0)[:60]]).verdict is Verdict.INCONCLUSIVE
    assert leak.growth([]).verdict is Verdict.INCONCLUSIVE


def test_what_an_allocator_moves_is_no_leak():
    """Three megabytes in 2,400 requests are a slope of 12 MB per 10,000, and may yet be nothing."""
    points = [(n, mb) for n, mb in life(12.0) if n <= 5_000]
    assert leak.growth([points]).verdict is Verdict.INCONCLUSIVE
