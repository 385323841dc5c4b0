"""Verdicts, and what each of them means for pytest and for a script that reads the exit status."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Verdict(StrEnum):
    """What a run has established about one clause."""

    EXACT = "EXACT"  # holds, decided without statistics and without tolerance
    HOLDS = "HOLDS"  # holds, up to a stated bias at the run's error rate
    TIE_EXPLAINED = "TIE-EXPLAINED"  # differs only where rounding within the claim decides
    VIOLATED = "VIOLATED"
    INCONCLUSIVE = "INCONCLUSIVE"  # too little evidence, or the hazard never occurred
    SKIPPED = "SKIPPED"  # not offered or not claimed; never a pass
    WAIVED = "WAIVED"  # violated, and excused by a waiver with reason, link and expiry
    ERROR = "ERROR"  # the decoder crashed, raised or timed out: says nothing about the clause


class Level(StrEnum):
    """How binding a clause is."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    INFO = "INFO"


class Profile(StrEnum):
    """How much is run, and how much may stay open."""

    QUICK = "quick"
    DEVICE = "device"  # what kernels and graphs can break, at the sizes of quick
    CORE = "core"
    NIGHTLY = "nightly"
    CERTIFY = "certify"


class Outcome(StrEnum):
    """What pytest shows for a clause."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Status(IntEnum):
    """Exit status of a run; the first that applies in the order VIOLATED, ERROR, NOT_LIVE, OPEN, CLEAN."""

    CLEAN = 0
    VIOLATED = 1
    OPEN = 2  # bad usage, nothing judged, or under certify something left open
    ERROR = 3
    NOT_LIVE = 4


MEANING = {
    Status.CLEAN: "every clause that counts and was decided holds, or is waived",
    Status.VIOLATED: "violated",
    Status.OPEN: "nothing was judged, or something was left open that this profile needs",
    Status.ERROR: "the decoder failed: its clauses are undecided",
    Status.NOT_LIVE: "not live: speculation never ran, so agreement means nothing",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with the sentence that supports it.

    `delta` bounds the bias of HOLDS; `case` and `place` point at what decided it: an index into the evidence's cases,
    and one into that case's tokens or decisions.
    """

    verdict: Verdict
    detail: str
    delta: float | None = None
    case: int | None = None
    place: int | None = None

    def __str__(self) -> str:
        bound = f"(≤ {self.delta:.3g})" if self.delta is not None else ""
        return f"{self.verdict}{bound}: {self.detail}"


OUTCOMES: dict[Verdict, dict[Profile, Outcome]] = {
    verdict: dict(zip(Profile, (Outcome(name) for name in row.split()), strict=True))
    for verdict, row in {
        Verdict.EXACT: "passed passed passed passed passed",
        Verdict.HOLDS: "passed passed passed passed passed",
        Verdict.TIE_EXPLAINED: "passed passed passed passed passed",
        Verdict.VIOLATED: "failed failed failed failed failed",
        Verdict.INCONCLUSIVE: "skipped skipped skipped skipped failed",
        Verdict.SKIPPED: "skipped skipped skipped skipped skipped",
        Verdict.WAIVED: "skipped skipped skipped skipped skipped",
        Verdict.ERROR: "failed failed failed failed failed",
    }.items()
}
"""Outcome of a MUST clause by verdict and profile; see `outcome` for the other levels."""

LIVENESS = "LIVE-1"  # the clause that decides NOT_LIVE


def outcome(verdict: Verdict, level: Level, profile: Profile) -> Outcome:
    """Pytest outcome of a clause: a SHOULD fails only under certify, an INFO only where the decoder breaks."""
    shown = OUTCOMES[verdict][profile]
    binding = level is Level.MUST or (level is Level.SHOULD and profile is Profile.CERTIFY)
    if shown is Outcome.FAILED and verdict is not Verdict.ERROR and not binding:
        return Outcome.SKIPPED
    return shown


DECIDED = frozenset({Verdict.EXACT, Verdict.HOLDS, Verdict.TIE_EXPLAINED, Verdict.VIOLATED, Verdict.WAIVED})


def exit_status(results: Iterable[tuple[str, Level, Verdict]], profile: Profile) -> Status:
    """Exit status of a run from (clause id, level, verdict) of every clause about the decoder that was selected."""
    results = list(results)
    failed = [
        (clause, verdict) for clause, level, verdict in results if outcome(verdict, level, profile) is Outcome.FAILED
    ]
    verdicts = {verdict for _, verdict in failed}
    if Verdict.VIOLATED in verdicts:
        return Status.VIOLATED
    if Verdict.ERROR in verdicts:
        return Status.ERROR
    if any(clause == LIVENESS and verdict is Verdict.INCONCLUSIVE for clause, _, verdict in results):
        return Status.NOT_LIVE
    if failed or not any(verdict in DECIDED for _, _, verdict in results):
        return Status.OPEN
    return Status.CLEAN
