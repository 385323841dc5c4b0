"""Epochs of a soak on the decoder of a device, passes captured: what it says, keeps and frees is as it should be."""

import pytest

from .twins import run_definitions  # isort: split

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.soak.about import About
from specqual.soak.scenarios import SCENARIOS
from specqual.soak.worker import World

from .test_gpu_graphs import WHERE

HYBRID = Setup(
    target=fixtures.path("nano/hybrid"),
    draft=fixtures.path("nano/hybrid-dflash2"),
    options={"device": WHERE, "graphs": 1},
)
LOOKS = {
    "conversations": {"prefix hits", "states replayed", "requests served again, alone"},
    "pressure": {"preemptions", "states replayed", "requests served again, alone"},
    "counted": {"times objects were counted", "cancellations"},
    "mixed": {"acceptances", "rejections", "tokens judged", "times all was given back"},
}


@pytest.fixture(autouse=True)
def definitions(monkeypatch):
    run_definitions(monkeypatch)


@pytest.mark.parametrize("scenario", LOOKS)
def test_a_soak_on_a_device_has_nothing_to_say_against_it(scenario):
    world = World(About("optimised", HYBRID, 3, (scenario,), 0.12))
    try:
        for number in range(2):
            epoch = world.play((scenario, number)).epoch
            assert (epoch.verdict, epoch.violations) == (Verdict.EXACT, ())
            assert {name for name in LOOKS[scenario] if not epoch.counts.get(name)} == set()
        assert world.stage(SCENARIOS[scenario].stage).decoder.counters()["graph_captures"]
    finally:
        world.close()
