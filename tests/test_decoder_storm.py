"""Hundreds of requests at once leave nothing behind and mix nothing up; `python -m tests.storm` tries 5,000."""

import pytest

from specqual import fixtures
from specqual.contract import Setup

from .storm import storm


@pytest.mark.parametrize(("target", "count"), [("hybrid", 200), ("window", 100), ("dense", 100)])
def test_a_storm_of_requests_says_what_each_says_alone_and_gives_everything_back(target: str, count: int) -> None:
    draft = fixtures.path(f"nano/{target}-dflash2")
    outcome = storm(Setup(target=fixtures.path(f"nano/{target}"), draft=draft), count, seed=3)
    assert outcome.clean, str(outcome)
    assert outcome.requests == count and 0.1 * count < outcome.cancelled < 0.3 * count and outcome.looks > 3
