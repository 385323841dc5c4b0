"""Decoders in which a hazard never occurs: however right the output is, no clause about that hazard is decided."""

from collections.abc import Callable
from typing import Any

import pytest

from specqual import fixtures
from specqual.conformance.check import run
from specqual.conformance.lab import Run
from specqual.contract import Event, Finished, Proposal, Refused, Request, Setup
from specqual.decoder import engine, make
from specqual.mutants.planting import planted

SETUP = Setup(target=fixtures.path("nano/dense"), draft=fixtures.path("nano/dense-dflash2"))
HELD = {"EXACT", "HOLDS", "TIE-EXPLAINED"}


class Around:
    """The optimised decoder behind one thin layer, which knows who lives and who is preempted."""

    def __init__(self, setup: Setup) -> None:
        self.inner = make(setup)
        self.claims = self.inner.claims
        self.live: list[int] = []
        self.held: set[int] = set()

    def submit(self, request: Request) -> int:
        self.live.append(self.inner.submit(request))
        return self.live[-1]

    def preempt(self, request_id: int) -> None:
        self.inner.preempt(request_id)
        self.held.add(request_id)

    def resume(self, request_id: int) -> None:
        self.inner.resume(request_id)
        self.held.discard(request_id)

    def cancel(self, request_id: int) -> None:
        self.inner.cancel(request_id)
        self.live.remove(request_id)

    def step(self) -> list[Event]:
        events = self.inner.step()
        for event in events:
            if isinstance(event, Finished | Refused) and event.request_id in self.live:
                self.live.remove(event.request_id)
        return events


def passed_on(name: str) -> Callable[..., Any]:
    return lambda self, *given, **named: getattr(self.inner, name)(*given, **named)


for name in ("close", "score", "rounds", "counters", "script", "tape", "inspect", "resources", "schedule", "kernels"):
    setattr(Around, name, passed_on(name))  # protocols are looked for on the class


class OneAtATime(Around):
    """Serves a request to its end, and then the next one."""

    def chosen(self) -> int | None:
        return next((i for i in self.live if i not in self.held), None)

    def step(self) -> list[Event]:
        chosen = self.chosen()
        others = [i for i in self.live if i != chosen and i not in self.held]
        for request_id in others:
            self.inner.preempt(request_id)
        events = super().step()
        for request_id in others:
            self.inner.resume(request_id)
        return events


class InTurns(OneAtATime):
    """Serves one request until something comes of it, and then the next one."""

    def step(self) -> list[Event]:
        events = super().step()
        for request_id in {event.request_id for event in events} & set(self.live):  # whoever was served comes last
            self.live.remove(request_id)
            self.live.append(request_id)
        return events


class NeverPreempts(Around):
    """Goes on with a preempted request behind the scenes, and says afterwards what came of it."""

    kept: tuple[Event, ...] = ()

    def preempt(self, request_id: int) -> None:
        self.inner.rounds(request_id)
        self.held.add(request_id)

    def resume(self, request_id: int) -> None:
        self.held.discard(request_id)

    def step(self) -> list[Event]:
        events = [*self.kept, *super().step()]
        self.kept = tuple(event for event in events if event.request_id in self.held)
        return [event for event in events if event.request_id not in self.held]


class HearsNoCancel(Around):
    """Goes on with a cancelled request to its own end."""

    def cancel(self, request_id: int) -> None:
        if request_id not in self.live:
            raise KeyError(request_id)


def never_drafts(setup: Setup) -> Any:
    """Asks its drafter for nothing."""
    swaps: dict[tuple[Any, str], Callable[..., Any]] = {
        (engine, "offered"): lambda rows, *others: [Proposal.certain(()) for _ in rows]
    }
    return planted(setup, swaps, make)


def forgets_prefixes(setup: Setup) -> Any:
    """Has no use for what an earlier prompt left behind."""
    return planted(setup, {(engine.Prefixes, "attach"): lambda self, *others: None}, make)


DECODERS = {
    "GE-1 LAW-5 NUM-5 LIM-6 GRF-1 TEL-1 TEL-4": never_drafts,
    "NUM-4 LIM-5 GRF-2 TEL-2 CXL-3": OneAtATime,
    "GE-5": InTurns,
    "SCH-2": NeverPreempts,
    "TEL-1 CXL-3": HearsNoCancel,
    "RES-2": forgets_prefixes,
}


@pytest.mark.parametrize(("clauses", "decoder"), DECODERS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_what_never_happens_is_not_said_to_hold(clauses: str, decoder: Callable[[Setup], Any]) -> None:
    found = list(run(Run("a decoder", decoder, SETUP), clauses.split()))
    assert {one.clause: one.detail for one in found if one.verdict in HELD | {"ERROR"}} == {}


def test_the_same_clauses_are_decided_for_the_decoder_itself() -> None:
    clauses = {clause for clauses in DECODERS for clause in clauses.split()}
    found = list(run(Run("a decoder", Around, SETUP), sorted(clauses)))
    assert {one.clause: one.detail for one in found if one.verdict not in HELD} == {}
