"""Leaks are found, and what only fluctuates is not called one."""

from random import Random

import pytest

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Request, Setup
from specqual.decoder import make
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
    found = leak.growth([life(0.0), life(6.0, noise)])
    assert found.verdict is Verdict.VIOLATED and "6" in found.detail.split(" MB")[0]


def test_a_noisy_series_and_a_short_one_stay_open():
    assert leak.growth([life(0.0, 60.0)]).verdict is Verdict.INCONCLUSIVE
    assert leak.growth([life(9.0)[:60]]).verdict is Verdict.INCONCLUSIVE
    assert leak.growth([]).verdict is Verdict.INCONCLUSIVE


def test_what_an_allocator_moves_is_no_leak():
    """Three megabytes in 2,400 requests are a slope of 12 MB per 10,000, and may yet be nothing."""
    points = [(n, mb) for n, mb in life(12.0) if n <= 5_000]
    assert leak.growth([points]).verdict is Verdict.INCONCLUSIVE


def series(count):
    return [(n, {"Row": count(place)}) for place, n in enumerate(REQUESTS[:200])]


def test_objects_that_pile_up_are_named():
    found = leak.piled([series(lambda place: 100), series(lambda place: 100 + place // 5 + place % 7)])
    assert found.verdict is Verdict.VIOLATED and "Row from" in found.detail


def test_objects_that_come_and_go_are_no_leak():
    for seed in range(30):
        chance = Random(seed)
        assert leak.piled([series(lambda place, chance=chance: chance.randrange(50, 90))]).verdict is Verdict.HOLDS


def test_a_step_within_the_warm_up_is_no_leak():
    assert leak.piled([series(lambda place: 100 if place < 45 else 200)]).verdict is Verdict.HOLDS


def test_few_points_of_rest_say_nothing():
    assert leak.piled([series(lambda place: place)[:60]]).verdict is Verdict.INCONCLUSIVE


def test_a_census_counts_the_decoders_own_objects_and_no_others():
    decoder = make(Setup(target=fixtures.path("nano/dense"), draft=fixtures.path("nano/dense-dflash2")))
    before = leak.census([decoder])
    assert before["Engine"] == 1 and before["Tensor"] > 0 and "Request" not in before
    decoder.submit(Request(prompt=(1, 2, 3), max_tokens=4))
    assert leak.census([decoder]) - before == {"Row": 1}
    while decoder.step():
        pass
    assert leak.package("vllm.engine.core") == "vllm"
