"""The decoder's objects are counted behind the same traffic, and not one may be left over."""

import pytest
import torch

from specqual import fixtures
from specqual.contract import Request, Setup
from specqual.decoder import make
from specqual.decoder.engine import Engine
from specqual.soak.about import About
from specqual.soak.objects import census, package
from specqual.soak.worker import World

NANO = Setup(target=fixtures.path("nano/dense"), draft=fixtures.path("nano/dense-dflash2"))


class Clinging(Engine):
    """Keeps the samples of requests that were cancelled."""

    def cancel(self, request_id):
        self.__dict__.setdefault("kept", []).append(self._rows(request_id))
        super().cancel(request_id)


def clinging(setup):
    decoder = make(setup)
    decoder.__class__ = Clinging
    return decoder


def played(decoder: str, number: int = 0, scale: float = 1.0):
    world = World(About(decoder, Setup(target=NANO.target), 3, ("counted",), scale))
    found = world.play(("counted", number)).epoch
    world.close()
    return found


class Capturing(Engine):
    """Captures a graph, which stays, the first time that it meets a batch of a new width behind a hundred requests: as
    one on a device does where prompts hit prefixes that were not there the first time."""

    def submit(self, request):
        self.__dict__.setdefault("told", []).append(0)
        return super().submit(request)

    def step(self):
        kept = self.__dict__.setdefault("graphs", {})
        if 100 < len(self.__dict__.get("told", ())) <= 200:
            kept.setdefault(len(self.told) // 50, torch.zeros(1))
        return super().step()

    def counters(self):
        return {"graph_captures": len(self.__dict__.get("graphs", ()))}


def capturing(setup):
    decoder = make(setup)
    decoder.__class__ = Capturing
    return decoder


class Restless(Engine):
    """Captures a graph for each request, from that on which is the hundredth of a storm to the two hundredth."""

    told = 0

    def submit(self, request):
        self.told += 1
        return super().submit(request)

    def counters(self):
        return {"graph_captures": min(max(self.told - 60 - 100, 0), 100)}  # sixty of three epochs of gaps


def restless(setup):
    decoder = make(setup)
    decoder.__class__ = Restless
    return decoder


def test_a_census_counts_the_decoders_own_objects_and_no_others():
    decoder = make(NANO)
    before = census([decoder])
    assert before["Engine"] >= 1 and before["Tensor"] > 0 and "Request" not in before
    decoder.submit(Request(prompt=(1, 2, 3), max_tokens=4))
    assert census([decoder]) - before == {"Row": 1}


@pytest.mark.parametrize(
    ("module", "of"), [("specqual.decoder.pages", "specqual.decoder"), ("vllm.engine.core", "vllm"), ("mine", "mine")]
)
def test_a_module_belongs_to_its_package(module, of):
    assert package(module) == of


def test_a_graph_that_is_captured_when_the_same_comes_again_is_no_leak():
    epoch = played("tests.test_soak_objects:capturing")
    assert epoch.verdict == "EXACT" and epoch.counts["times objects were counted"] == 1


def test_graphs_that_are_captured_while_objects_are_counted_are_not_the_next_epochs():
    about = About("tests.test_soak_objects:restless", Setup(target=NANO.target), 3, ("counted", "gaps"), 0.25)
    world = World(about)
    found = [world.play(task).epoch for task in (("gaps", 0), ("gaps", 1), ("gaps", 2), ("counted", 0), ("gaps", 3))]
    captured = world.stage("nano").decoder.counters()["graph_captures"]
    world.close()
    assert captured > 12 and {epoch.verdict for epoch in found} == {"EXACT"}


@pytest.mark.parametrize("scale", [0.25, 1.0])
def test_a_sound_decoder_has_nothing_left_over(scale):
    epoch = played("optimised", scale=scale)
    assert epoch.verdict == "EXACT" and epoch.counts["times objects were counted"] == 1
    assert epoch.counts["cancellations"] > 10 and epoch.counts["preemptions"] > 5


def test_what_is_kept_of_cancelled_requests_is_found_within_one_epoch():
    epoch = played("tests.test_soak_objects:clinging")
    assert epoch.verdict == "VIOLATED"
    (found,) = epoch.violations
    assert (
        found.oracle == "objects" and "more than before the same 100 requests" in found.detail and "Row" in found.detail
    )
