"""Acceptance against closed forms: what a draft's chance is, and how rarely chance alone accuses."""

from random import Random

import numpy as np
import pytest

from specqual.conformance.acceptance import chance, reached
from specqual.conformance.kinds.acceptance import decide, reach, sighted
from specqual.contract import CompactLaw, Round, Rule


def case(hits: list[int], chances: list[float], alpha: float = 1e-6) -> dict[str, object]:
    return {
        "what": "drafts",
        "slot": 0,
        "accepted": hits,
        "chance": chances,
        "planned": len(hits),
        "alpha": alpha,
        "slack": 0.0,
        "wanted": 0.3,
    }


def test_a_drafts_chance_is_the_closed_form_of_its_rule() -> None:
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), CompactLaw((1, 3), (0.4, 0.6))
    assert chance(Rule.RATIO, p, q, 1) == pytest.approx(0.3)
    assert chance(Rule.RATIO, p, None, 0) == chance(Rule.ONE_HOT, p, q, 0) == chance(Rule.SAMPLER_MATCH, p, q, 0) == 0.5


def test_drafts_behind_a_rejection_or_the_end_are_not_judged() -> None:
    def of(accepted: int, committed: tuple[int, ...]) -> int:
        return len(reached(Round(0, 0, 4, 9, (1, 2, 3), (None,) * 3, accepted, committed)))

    assert [of(0, (7,)), of(1, (1, 7)), of(3, (1, 2, 3, 7)), of(3, (1, 2)), of(1, (1,))] == [1, 2, 3, 2, 1]


def test_chance_alone_accuses_no_more_often_than_stated() -> None:
    draw, false, runs, alpha = Random(5), 0, 2000, 0.05
    for _ in range(runs):
        chances = [draw.random() for _ in range(60)]
        hits = [int(draw.random() < p) for p in chances]
        false += decide([case(hits, chances, alpha)]).verdict == "VIOLATED"
    assert false <= runs * alpha


def test_half_the_acceptance_is_seen_and_too_few_drafts_decide_nothing() -> None:
    draw = Random(6)
    chances = [0.4 + 0.2 * draw.random() for _ in range(600)]
    halved = [int(draw.random() < p / 2) for p in chances]
    assert decide([case(halved, chances)]).verdict == "VIOLATED"
    assert decide([case(halved[:9], chances[:9])]).verdict == "INCONCLUSIVE"
    assert decide([case([], [])]).verdict == "INCONCLUSIVE"


def slots(draw: Random, biases: list[float], count: int, alpha: float = 1e-6) -> list[dict[str, object]]:
    """Cases of one drafter, each slot off by its bias and judged half as often as the one before."""
    cases = []
    for slot, bias in enumerate(biases):
        chances = [0.2 + 0.6 * draw.random() for _ in range(count >> slot)]
        hits = [int(draw.random() < p + bias) for p in chances]
        cases.append(case(hits, chances, alpha) | {"slot": slot, "what": f"slot {slot + 1}"})
    return cases


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_chance_alone_accuses_no_more_often_than_stated_over_many_slots(alpha: float) -> None:
    draw, runs = Random(7), 1000
    false = sum(decide(slots(draw, [0.0] * 5, 128, alpha)).verdict == "VIOLATED" for _ in range(runs))
    assert false <= runs * alpha


def test_slots_that_make_up_for_one_another_are_seen_and_what_pools_them_sees_nothing() -> None:
    found = slots(Random(8), [0.06, -0.1, -0.12, 0.1], 800)
    pooled = case(*([x for one in found for x in one[name]] for name in ("accepted", "chance")))  # type: ignore[attr-defined]
    seen = decide(found)
    assert seen.verdict == "VIOLATED" and "all slots are off" in seen.detail
    assert decide([pooled]).verdict == "HOLDS"


def test_a_bias_that_is_called_visible_is_seen_nine_times_in_ten() -> None:
    draw = Random(9)
    one, every = sighted(slots(draw, [0.0] * 4, 800))
    single = [decide(slots(draw, [one, 0, 0, 0], 800)).verdict == "VIOLATED" for _ in range(100)]
    signed = [every, -every, every, -every]
    whole = [decide(slots(draw, signed, 800)).verdict == "VIOLATED" for _ in range(100)]
    assert sum(single) >= 85 and sum(whole) >= 85


def test_a_slot_that_was_never_judged_is_told_and_decides_nothing() -> None:
    found = decide([*slots(Random(10), [0.0], 800), case([], []) | {"slot": 1, "what": "slot 2"}])
    assert found.verdict == "HOLDS" and "1 of 2 slots were never judged" in found.detail


def test_the_reach_shrinks_with_the_number_of_drafts_and_grows_with_certainty() -> None:
    assert reach(4000, 4000, 14.0) < reach(400, 400, 14.0) < reach(400, 400, 21.0)
    assert reach(400, 400, 14.0) <= reach(400, 900, 14.0)
