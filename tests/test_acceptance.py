"""Acceptance against closed forms: what a draft's chance is, and how rarely chance alone accuses."""

from random import Random

import numpy as np
import pytest

from specqual.conformance.acceptance import chance, reached
from specqual.conformance.kinds.acceptance import decide, reach
from specqual.contract import CompactLaw, Round, Rule


def case(hits: list[int], chances: list[float], alpha: float = 1e-6) -> dict[str, object]:
    return {
        "what": "drafts",
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


def test_the_reach_shrinks_with_the_number_of_drafts_and_grows_with_certainty() -> None:
    assert reach(4000, 4000, 1e-6) < reach(400, 400, 1e-6) < reach(400, 400, 1e-9)
    assert reach(400, 400, 1e-6) <= reach(400, 900, 1e-6)
