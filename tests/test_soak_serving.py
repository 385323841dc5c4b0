"""Serving has an end, and an end without usage hides nothing."""

from dataclasses import replace

import pytest

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Finished, Setup, Tokens
from specqual.decoder import make
from specqual.soak.about import About
from specqual.soak.records import DECODER
from specqual.soak.worker import World

NANO = Setup(target=fixtures.path("nano/dense"))


def played(name: str, scenario: str):
    """The first epoch of a scenario on one of the decoders of this file."""
    world = World(About(f"tests.test_soak_serving:{name}", NANO, 3, (scenario,), 0.05))
    epoch = world.play((scenario, 0)).epoch
    world.close()
    return epoch


def never_ending(beyond, ids):
    """Makes decoders whose first cancelled request has no end, and says these ids at every tick from there on."""

    def build(setup):
        decoder = make(setup)
        step, cancel, kept = decoder.step, decoder.cancel, []

        def cancelled(request_id):
            cancel(request_id)
            kept.append(request_id)

        def heard():
            events = [one for one in step() if not (isinstance(one, Finished) and one.request_id in kept[:1])]
            return events + [Tokens(request_id + beyond, ids) for request_id in kept[:1]]

        decoder.cancel, decoder.step = cancelled, heard
        return decoder

    return build


babbling, empty, astray = never_ending(0, (3,)), never_ending(0, ()), never_ending(10**6, (3,))


@pytest.mark.parametrize("name", ["babbling", "empty", "astray"])
def test_an_epoch_ends_although_a_decoder_says_at_every_tick_what_brings_no_request_nearer_to_its_end(name):
    epoch = played(name, "storm")
    assert epoch.verdict in (Verdict.ERROR, Verdict.VIOLATED)
    assert [one.detail for one in epoch.violations if one.oracle == DECODER] == [
        "1 requests heard neither a token nor their end for 400 ticks"
    ]


def uncharged(setup):
    """Keeps half of its tokens to itself, and says of no request what it is charged for."""
    decoder = make(setup)
    step = decoder.step

    def heard():
        told = (one for one in step() if not isinstance(one, Tokens) or one.request_id % 2)
        return [replace(one, usage=None) if isinstance(one, Finished) else one for one in told]

    decoder.step = heard
    return decoder


def test_an_end_without_usage_hides_nothing():
    epoch = played("uncharged", "gaps")
    assert epoch.verdict == Verdict.VIOLATED and {one.oracle for one in epoch.violations} == {"events"}
