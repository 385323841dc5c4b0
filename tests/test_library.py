"""The suite as one call in somebody else's test."""

import pytest

import specqual
from specqual import fixtures
from specqual.conformance.waivers import Waiver
from specqual.contract import Setup

from .toy import make

TABLE = fixtures.path("table/chain")
OTHER, DRAFT = fixtures.path("nano/hybrid"), fixtures.path("nano/dense-dflash2")


def setup(fault="none"):
    return Setup(target=TABLE, options={"fault": fault})


def test_a_sound_decoder_returns_its_verdicts():
    found = specqual.check(make, ["GE-1", "LIVE-1", "ERR"], target=TABLE)
    assert {result.clause: result.verdict for result in found} == {
        "LIVE-1": "EXACT",
        "GE-1": "EXACT",
        "ERR-1": "EXACT",
        "ERR-2": "EXACT",
    }


def test_one_assertion_holds_the_proof_of_every_violation():
    with pytest.raises(AssertionError) as caught:
        specqual.check(make, ["GE-1", "GE-5", "LAW-2"], target=str(TABLE), options={"fault": "token"})
    text = str(caught.value)
    assert "GE-1 VIOLATED\nRequired   " in text and "GE-5 VIOLATED\nRequired   " in text
    assert "LAW-2" not in text
    assert "--decoder tests.toy:make" in text and "--option fault=token" in text


def test_a_finished_decoder_is_judged_as_it_is_and_stays_open():
    decoder = make(setup())
    closed = []
    decoder.close = lambda: closed.append(True)
    found = specqual.check(decoder, ["GE-1", "GE-2"], target=TABLE)
    said = {result.clause: (result.verdict, result.detail) for result in found}
    assert said["GE-1"][0] == "EXACT" and not closed
    assert said["GE-2"][0] == "SKIPPED" and "pass its factory instead" in said["GE-2"][1]


def test_a_crash_fails_with_its_traceback():
    with pytest.raises(AssertionError, match=r"(?s)the decoder failed.*GE-1 ERROR: step raised.*Traceback"):
        specqual.check(make, ["GE-1"], target=TABLE, options={"fault": "crash"})


def test_nothing_decided_is_no_pass():
    with pytest.raises(AssertionError, match=r"(?s)nothing was judged.*LAW-2 SKIPPED: .*Traced|Taped"):
        specqual.check(make, ["LAW-2"], target=TABLE)


def test_a_waiver_excuses():
    waiver = Waiver("GE-1", "known", "https://example.org", "9999-01-01")
    (found,) = specqual.check(make, ["GE-1"], target=TABLE, options={"fault": "token"}, waivers=[waiver])
    assert found.verdict == "WAIVED"


@pytest.mark.parametrize(
    ("decoder", "named", "message"),
    [
        (make, {"clauses": ["GE-99"]}, "clauses: no clause is named 'GE-99'"),
        (make, {"clauses": "GE-1"}, "clauses: must be a sequence of ids"),
        (make, {"target": "nowhere"}, "target: there is no directory 'nowhere'"),
        (make, {"target": TABLE, "draft": "nowhere"}, "draft: there is no directory"),
        (make, {"draft": TABLE}, "target: is needed"),
        (make, {"target": OTHER, "draft": DRAFT}, "draft: config.json: num_target_layers: is 3, but the target's is 4"),
        (make(setup()), {}, "target: is needed"),
        (make, {"profile": "fast"}, "'fast' is not a valid Profile"),
        (7, {"target": TABLE}, "decoder: must be a factory"),
        ("nonsense", {"target": TABLE}, "--decoder: 'nonsense' is none of"),
    ],
)
def test_a_wrong_argument_is_named(decoder, named, message):
    with pytest.raises(ValueError, match=message):
        specqual.check(decoder, **named)


def test_there_is_nothing_else_to_look_up():
    with pytest.raises(AttributeError, match="has no attribute 'chek'"):
        specqual.chek  # noqa: B018
