"""Memory that grows is found, and what only fluctuates is not called growth."""

from bisect import bisect_left
from itertools import combinations
from math import sqrt
from random import Random
from statistics import median

import pytest
from scipy.stats import norm, theilslopes

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


@pytest.mark.parametrize("seed", range(20))
def test_the_slope_of_one_life_is_that_of_scipy(seed):
    chance = Random(seed)
    places = sorted(chance.randint(0, 300) for _ in range(chance.randint(8, 60)))
    held = [chance.choice((chance.gauss(0, 1) + 0.01 * place, float(chance.randint(0, 3)))) for place in places]
    found = leak.slope_of([*zip(map(float, places), held, strict=True)])
    expected = theilslopes(held, places, leak.CONFIDENCE)
    told = (expected.slope, expected.low_slope, expected.high_slope)
    assert (found.middle, found.low, found.high) == pytest.approx([leak.PER * value for value in told])


def test_the_interval_of_several_lives_is_that_of_their_sum():
    lives = [life(1.0, 3.0, seed)[: 30 + 10 * seed] for seed in range(3)]
    slopes = sorted((b - a) / (m - n) for one in lives for (n, a), (m, b) in combinations(one, 2))
    away = norm.ppf(0.5 + leak.CONFIDENCE / 2) * sqrt(sum(n * (n - 1) * (2 * n + 5) / 18 for n in map(len, lives)))
    found = leak.slope_of(*lives)
    assert bisect_left(slopes, found.low / leak.PER) == pytest.approx((len(slopes) - away) / 2, abs=2)
    assert bisect_left(slopes, found.high / leak.PER) == pytest.approx((len(slopes) + away) / 2, abs=2)
    assert found.middle == pytest.approx(leak.PER * median(slopes))
    assert found.requests == sum(one[-1][0] - one[0][0] for one in lives)


def test_lives_that_say_too_little_alone_hold_together():
    """Most have an interval that reaches beyond the bound; that of the pairs within all of them does not."""
    short = [life(0.0, 2.0, seed)[:200] for seed in range(40)]
    assert sum(leak.growth([one]).verdict is Verdict.INCONCLUSIVE for one in short) > 30
    found = leak.growth(short)
    assert found.verdict is Verdict.HOLDS and "in 40 processes" in found.detail


def test_a_life_that_is_short_spoils_no_long_one():
    long = [(40.0 * k, 300.0 + 0.1 * (k % 3)) for k in range(2_000)]
    assert leak.growth([long]).verdict is Verdict.HOLDS
    assert leak.growth([long, life(0.0, 60.0)[:150]]).verdict is Verdict.HOLDS


def test_lives_are_compared_with_themselves_only():
    """The second takes a hundred megabytes more from its start on, and neither grows."""
    assert leak.growth([life(0.0), [(n + 9_000, mb + 100) for n, mb in life(0.0)]]).verdict is Verdict.HOLDS


def test_a_leak_of_one_life_is_not_lost_among_sound_ones():
    sound = [life(0.0, 0.2, seed) for seed in range(8)]
    assert leak.growth(sound).verdict is Verdict.HOLDS
    assert leak.growth([*sound, life(9.0, 0.2)]).verdict is Verdict.VIOLATED
    found = leak.growth([*sound, life(4.5, 0.2)])  # sure as a whole; a half may be the allocator's
    assert found.verdict is Verdict.INCONCLUSIVE and "of one alone by 4.5" in found.detail


def test_one_that_was_stopped_while_it_took_its_steps_is_judged_by_a_level_one_that_is_longer():
    steps = [(40.0 * k, 300 + 2.0 * (40 * k // 1_000) + 0.1 * (k % 3)) for k in range(150)]
    level = [(40.0 * k, 330 + 0.1 * (k % 3)) for k in range(2_000)]
    assert leak.growth([steps, level]).verdict is Verdict.HOLDS
    assert leak.growth([steps, level[:250]]).verdict is not Verdict.HOLDS
    leaking = [(40.0 * k, 300 + 2.0 * (40 * k // 1_000) + 0.1 * (k % 3)) for k in range(1_500)]
    assert leak.growth([leaking, level]).verdict is Verdict.VIOLATED


def in_steps(slope: float, step: float, requests: float, seed: int = 0) -> list[tuple[float, float]]:
    """A short life that grows by so many MB per 10,000 requests, in steps of an allocator."""
    chance = Random(seed)
    begin = chance.random() * step
    points = [
        (40.0 * k, 40.0 * max(0.0, 40.0 * k - 2_000) / leak.PER * slope / 40.0) for k in range(int(requests / 40))
    ]
    return [(n, 300 + (begin + mb) // step * step + chance.uniform(-0.05, 0.05)) for n, mb in points]


@pytest.mark.parametrize(
    ("slope", "step", "lives", "requests"), [(20, 16, 6, 5_000), (10, 8, 20, 4_000), (10, 8, 2, 12_000)]
)
def test_a_leak_in_steps_is_not_lost_among_short_lives(slope, step, lives, requests):
    for seed in range(5):
        found = [in_steps(slope, step, requests, 100 * seed + one) for one in range(lives)]
        assert leak.growth(found).verdict is not Verdict.HOLDS


@pytest.mark.parametrize("begin", [0.8, 0.9])
def test_a_leak_that_begins_late_does_not_hold(begin):
    late = [(40.0 * k, 300 + 50 * max(0.0, 40.0 * k - begin * 80_000) / leak.PER) for k in range(2_000)]
    found = leak.growth([late])
    assert found.verdict is Verdict.INCONCLUSIVE and "from their first tenth to their last they rose by" in found.detail


def test_growth_of_one_that_an_allocator_could_move_keeps_the_others_from_holding():
    sound = [life(0.0, 0.05, seed) for seed in range(3)]
    assert leak.growth([*sound, life(2.0, 0.05)]).verdict is Verdict.INCONCLUSIVE


def test_a_warm_up_is_as_long_as_it_is_said_to_be():
    filling = [(n, 300 + 40 * min(n / 9_000, 1)) for n in (40.0 * k for k in range(1_000))]
    assert leak.growth([filling[:400]], 2_000).verdict is Verdict.INCONCLUSIVE
    assert leak.growth([filling[:400]], 9_000).verdict is Verdict.HOLDS
    assert "warm-up of 17,000" in leak.growth([filling[:400]], 17_000).detail


def test_what_an_allocator_moves_is_no_leak():
    """Three megabytes in 2,400 requests are a slope of 12 MB per 10,000, and may yet be nothing."""
    points = [(n, mb) for n, mb in life(12.0) if n <= 5_000]
    assert leak.growth([points]).verdict is Verdict.INCONCLUSIVE
