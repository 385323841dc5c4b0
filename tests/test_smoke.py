"""The first walk through an adapter: a good one passes, each common mistake is told with what to do about it."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from specqual import fixtures, reference
from specqual.cli import main
from specqual.conformance import template
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.smoke import Found, walk
from specqual.conformance.smoke_protocols import PROTOCOLS, decidable, delegated, needing
from specqual.contract import Finished, Setup, Tokens, Traced, Unsupported

DENSE = fixtures.path("nano/dense")
SETUP = Setup(target=DENSE)
TABLE = Setup(target=fixtures.path("table/chain"))


def walked(make: Any, setup: Setup = TABLE) -> dict[str, Found]:
    return {found.what: found for found in walk(make, setup)}


def test_the_template_passes_on_a_nano_target(tmp_path, monkeypatch, capsys):
    assert main(["smoke", "--template"]) == 0
    (tmp_path / "copied_adapter.py").write_text(capsys.readouterr().out)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["smoke", "--decoder", "copied_adapter:make", "--target", str(DENSE)]) == 0
    said = capsys.readouterr().out
    assert "✗" not in said and "6 tokens in 6 steps" in said
    assert f"{decidable(set())} of {len(CLAUSES)} clauses need nothing beyond" in said


@pytest.mark.parametrize(("decoder", "missing"), [("optimised", 0), ("reference", 1)])
def test_a_complete_decoder_passes_with_every_protocol(decoder, missing, capsys):
    pair = [str(fixtures.path(name)) for name in ("nano/dense", "nano/dense-dflash2")]
    assert main(["smoke", "--decoder", decoder, "--target", pair[0], "--draft", pair[1]]) == 0
    said = capsys.readouterr().out
    assert said.count("✓") == 8 + len(PROTOCOLS) - missing and said.count("–") == missing and "✗" not in said


def test_what_a_missing_protocol_would_unlock_is_told():
    found = walked(template.make)
    assert found["Scripted"].works is None
    assert f"{len(needing('Scripted'))} clauses need it: GE-4, " in found["Scripted"].said


class Wrapped:
    """A decoder that hands on what it does not define."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.claims = inner, inner.claims

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Passed(Wrapped):
    """The same, with the one method of `Traced` passed on by hand."""

    def rounds(self, request_id: int) -> Any:
        return self.inner.rounds(request_id)


def test_what_a_wrapper_hands_on_unseen_is_told():
    found = walked(lambda setup: Passed(reference.make(setup)))
    hint = "Python 3.12 and later do not see score behind __getattr__"
    assert hint in found["Scoring"].said
    assert found["Scoring"].works is (None if sys.version_info >= (3, 12) else True)
    assert found["Traced"].works and "__getattr__" not in found["Traced"].said
    assert "__getattr__" not in found["Dissectable"].said  # the reference offers none
    assert delegated(Wrapped(reference.make(TABLE)), Traced) == ["rounds"]


def test_every_protocol_that_a_clause_needs_is_walked_through():
    assert {name for clause in CLAUSES.values() for name in clause.needs} <= set(PROTOCOLS)


Change = Callable[[template.MyDecoder], Any]


def changed(name: str, change: Callable[[Any], Any]) -> Change:
    """A template whose method of this name returns what `change` makes of it."""

    def make(setup: Setup) -> template.MyDecoder:
        decoder = template.make(setup)
        method = getattr(decoder, name)
        setattr(decoder, name, lambda *given: change(method(*given)))
        return decoder

    return make


def each(kind: type, change: Callable[[Any], Any]) -> Change:
    """A template in which events of a kind are replaced by the list that `change` returns."""
    return changed("step", lambda events: [new for e in events for new in (change(e) if isinstance(e, kind) else [e])])


def with_attribute(name: str, value: Any) -> Change:
    def make(setup: Setup) -> template.MyDecoder:
        decoder = template.make(setup)
        setattr(decoder, name, value)
        return decoder

    return make


def claiming(**changes: Any) -> Change:
    def make(setup: Setup) -> template.MyDecoder:
        decoder = template.make(setup)
        decoder.claims = replace(decoder.claims, **changes)
        return decoder

    return make


def unchecked(decoder: template.MyDecoder) -> template.MyDecoder:
    def submit(request: Any) -> int:
        decoder._running[decoder._next] = template.Running(request)
        decoder._next += 1
        return decoder._next - 1

    decoder.submit = submit  # type: ignore[method-assign]
    return decoder


def refusing(setup: Setup) -> template.MyDecoder:
    raise Unsupported("no such thing here")


def trailing(event: Finished) -> list[Any]:
    return [event, Tokens(event.request_id, (1,))]


@pytest.mark.parametrize(
    ("make", "where", "said"),
    [
        (lambda setup: None, "make", "make returned None; it must return the decoder itself"),
        (lambda setup: template.MyDecoder, "make", "it must return the decoder itself"),
        (lambda setup: ModuleType("nothing"), "make", "has no method submit, step, cancel, close"),
        (refusing, "make", "no such thing here"),
        (with_attribute("cancel", None), "make", "has no method cancel"),
        (with_attribute("claims", {}), "claims", "claims is dict; it must be a specqual.contract.Claims"),
        (claiming(sampling=frozenset({"temprature"})), "claims", "names 'temprature', which is no field"),
        (changed("submit", str), "submit", "it must return the request's id, an int"),
        (changed("submit", lambda i: 0), "submit", "gave the id 0 to two requests"),
        (changed("step", lambda events: None), "submit", "step returned NoneType; it must return a list of events"),
        (changed("step", lambda events: iter(events)), "submit", "it must return a list of events"),
        (changed("step", lambda events: [("text", e) for e in events]), "submit", "step returned a tuple among its"),
        (each(Tokens, lambda e: [replace(e, ids=torch.tensor(e.ids))]), "submit", "Tokens.ids is a Tensor"),
        (each(Tokens, lambda e: [replace(e, ids=list(e.ids))]), "submit", "Tokens.ids is a list"),
        (each(Tokens, lambda e: [replace(e, ids=(torch.tensor(1),))]), "submit", "Tokens.ids holds a Tensor"),
        (each(Tokens, lambda e: [replace(e, request_id=7)]), "submit", "an event names request 7, and submit never"),
        (each(Finished, lambda e: []), "submit", "has no final event after 0.2 seconds"),
        (each(Finished, lambda e: [e, e]), "submit", "a second final event of request 0 came after its final event"),
        (each(Finished, trailing), "submit", "1 tokens of request 0 came after its final event"),
        (each(Finished, lambda e: [replace(e, reasons=())]), "submit", "it must hold one FinishReason for each"),
        (each(Finished, lambda e: [replace(e, usage=replace(e.usage, completion_tokens=0))]), "submit", "usage is"),
        (each(Tokens, lambda e: [e, e]), "submit", "but the events add up to"),
        (changed("cancel", lambda _: None), "close", "gives everything back"),
        (with_attribute("cancel", lambda request_id: None), "cancel", "no final event within four steps of cancel"),
        (
            lambda setup: unchecked(template.make(setup)),
            "errors",
            "prompt is malformed; call specqual.contract.validate first: the request was accepted",
        ),
    ],
)
def test_a_common_mistake_is_named(make, where, said, monkeypatch):
    monkeypatch.setattr("specqual.conformance.listening.SECONDS", 0.2)
    found = walked(make)
    assert said in found[where].said
    if where not in ("close", "cancel", "errors"):
        assert list(found)[-1] == where and found[where].works is False


def test_claims_that_do_not_follow_the_setup_are_named():
    drafted = replace(SETUP, draft=fixtures.path("nano/dense-dflash2"))
    assert "claims.limits.max_draft is 0" in walked(template.make, drafted)["claims"].said

    def constant(setup: Setup) -> template.MyDecoder:
        decoder = template.make(setup)
        limits = replace(decoder.claims.limits, max_draft=4)
        decoder.claims = replace(decoder.claims, limits=limits)
        return decoder

    assert "compute the claims from the setup" in walked(constant, drafted)["claims"].said


def test_a_field_that_is_ignored_without_a_word_is_named(monkeypatch):
    monkeypatch.setattr(template, "refuse_unhonoured", lambda request, claims: None)
    assert (
        "temperature is set and not in claims.sampling: the request was accepted"
        in walked(template.make)["errors"].said
    )


def test_mistakes_are_counted_and_status_one(monkeypatch, capsys):
    monkeypatch.setattr(template, "make", changed("step", lambda events: None))
    options = ["--decoder", "specqual.conformance.template:make", "--target", str(TABLE.target)]
    assert main(["smoke", *options]) == 1
    assert "1 mistake; what comes behind was not tried" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--decoder and --target: are needed"),
        (["--decoder", "optimised", "--target", "nowhere"], "--target: there is no directory 'nowhere'"),
        (["--decoder", "nonsense", "--target", "."], "--decoder: 'nonsense' is none of"),
    ],
)
def test_bad_usage_is_one_line(options, message, capsys):
    assert main(["smoke", *options]) == 2
    assert message in capsys.readouterr().err
