"""Trials: one decoder, some clauses on some fixtures, a process and a time limit; and what came of them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from specqual.conformance import check
from specqual.conformance.chapter import Result
from specqual.conformance.evidence import decide
from specqual.conformance.kinds import Case
from specqual.conformance.lab import Run
from specqual.conformance.resolve import resolve
from specqual.conformance.verdicts import Profile, Verdict

from .levels import Level, seen_at
from .mutant import Owner
from .pairs import Pair

PASSED = frozenset({Verdict.EXACT, Verdict.HOLDS, Verdict.TIE_EXPLAINED})


class Role(StrEnum):
    """Why a decoder is tried."""

    CLEAN = "clean"  # the sound decoder under the mutants of a base
    ORDER = "order"  # the same, to learn which clauses are of use at a level, and how cheap they are
    MUTANT = "mutant"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Trial:
    """What one process does: decide these clauses in order, until the first is VIOLATED if `stop`."""

    role: Role
    name: str
    decoder: str
    steps: tuple[Owner, ...]
    level: Level
    profile: Profile
    seed: int
    limit: float  # seconds
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What one clause said of one decoder. `proof` is the counterexample in full, empty where there is none; `shrunk`
    says from what it was shrunk, empty where it was not."""

    clause: str
    pair: str
    verdict: str
    detail: str
    seconds: float
    proof: str
    shrunk: str = ""

    @classmethod
    def of(cls, result: Result, pair: Pair) -> "Said":
        case = counterexample(result)
        proof, shrunk = ("", "") if case is None else (result.proof, str(case.get("shrunk", "")))
        return cls(result.clause, str(pair), str(result.verdict), result.detail, result.seconds, proof, shrunk)


def counterexample(result: Result) -> Case | None:
    """The case that decides a violation, decided once more by itself; None where none does."""
    if result.verdict != Verdict.VIOLATED:
        return None
    decision = decide(result.evidence)
    if decision.verdict is not Verdict.VIOLATED or decision.case is None:
        return None
    case: Case = result.evidence["cases"][decision.case]
    return case


FINISHED, OUT_OF_TIME, CRASHED = "finished", "time-out", "crash"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial that is over. `ended` says how: by itself, at its time limit, or with its process."""

    role: str
    name: str
    ended: str
    seconds: float
    said: tuple[Said, ...] = field(default=())

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Outcome":
        """The outcome that `json` was the JSON of."""
        known = {name: line[name] for name in ("role", "name", "ended", "seconds")}
        return cls(**known, said=tuple(Said(**one) for one in line["said"]))

    def plus(self, said: Said) -> "Outcome":
        return replace(self, said=(*self.said, said))


def perform(trial: Trial) -> Iterator[Said]:
    """Decide the clauses of a trial in this process; steps on the same fixtures share a laboratory."""
    make = seen_at(trial.level, resolve(trial.decoder))
    for pair, steps in groupby(trial.steps, key=lambda step: step.pair):
        about = Run(trial.decoder, make, pair.setup, trial.profile, trial.seed)
        for result in check.run(about, [step.clause for step in steps]):
            said = Said.of(result, pair)
            yield said
            if trial.stop and said.verdict == Verdict.VIOLATED:
                return


def steps(clauses: Sequence[str], pair: Pair) -> tuple[Owner, ...]:
    """The same fixtures for several clauses."""
    return tuple(Owner(clause, pair) for clause in clauses)
