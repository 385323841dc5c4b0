"""The places of tokens in their laws: as far as they are known, and each once."""

from dataclasses import replace

import pytest

from specqual import fixtures
from specqual.conformance.bracket import variation
from specqual.conformance.lab import Run
from specqual.contract import Request, Sampling, Setup
from specqual.decoder import make
from specqual.soak.bench import Bench
from specqual.soak.plan import Asked, Plan
from specqual.soak.serving import Traffic
from specqual.soak.stage import GROUNDS, Stage
from specqual.soak.tokens import SLACK, laws, regret

WARM = Request(prompt=(5, 6, 7), max_tokens=9, sampling=Sampling(temperature=1.0), seed=11, ignore_eos=True)
NANO = Setup(target=fixtures.path("nano/dense"))


def judged(setup: Setup, *asked: Asked) -> tuple[Stage, Bench]:
    """These requests served and judged."""
    stage = Stage(GROUNDS["nano"], Run("optimised", make, setup))
    plan = Plan(asked, judged=frozenset(range(len(asked))))
    traffic = Traffic(stage.decoder, plan, lambda what, about: None)
    bench = Bench(stage, plan, traffic.run(), salt=1)
    regret(bench)
    return stage, bench


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_law_of_a_place_is_known_as_far_as_rounding_lets_it_be(dtype):
    stage, bench = judged(replace(NANO, dtype=dtype), Asked(WARM))
    (evidence,) = laws(bench)
    assert evidence.samples == 9
    assert evidence.slack == max(SLACK, variation(stage.envelope, 0.7))
    assert (evidence.slack > 0.01) == (dtype == "bfloat16")
    stage.close()


def test_a_request_that_is_made_twice_bets_once():
    """What it says the second time is certain, given the first: it is no evidence."""
    stage, bench = judged(NANO, Asked(WARM), Asked(WARM, again=0))
    assert bench.counts["sampled tokens judged"] == 18
    assert sum(increment.samples for increment in laws(bench)) == 9
    stage.close()
