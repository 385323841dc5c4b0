"""What follows from the outcomes of trials: which mutants were killed, and which controls pass."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specqual.conformance.clauses import SHRINKING
from specqual.conformance.verdicts import Verdict

from .levels import Level
from .mutant import Control, Mutant
from .pairs import Pair
from .plan import Wanted, asked_in, passed, tried
from .trial import FINISHED, OUT_OF_TIME, PASSED, Outcome, Role, Said


class Fate(StrEnum):
    """What became of a mutant; only the first is a kill."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNSHRUNK = "not shrunk"  # by a clause that shrinks, whose counterexample is as it was found
    UNCLEAN = "unclean"  # the sound decoder does not pass the same clause, so that a violation says nothing
    PENDING = "sound decoder not run"
    ERROR = "error"
    CRASH = "crash"
    TIME_OUT = "time-out"
    MISSING = "not run"


@dataclass(frozen=True, slots=True)
class Cell:
    """A mutant's fate, the clause that decided it, and the seconds of that clause and those in front of it."""

    fate: Fate
    clause: str = ""
    pair: str = ""
    seconds: float = 0.0
    detail: str = ""
    proof: str = ""


def cell(mutant: Mutant, outcome: Outcome | None, clean: Iterable[Outcome], level: Level) -> Cell:
    """Killed means VIOLATED, with a counterexample, shrunk where the clause shrinks, by a clause that the sound decoder
    passes on the same fixtures and seed; at L3 by one that owns the fault, where any is named."""
    if outcome is None:
        return Cell(Fate.MISSING)
    clean, spent, worst = list(clean), 0.0, None
    owners = {(owner.clause, str(owner.pair)) for owner in mutant.owners}
    pairs = {str(pair): pair for pair in {mutant.pair, *(owner.pair for owner in mutant.owners)}}
    for said in outcome.said:
        spent += said.seconds
        if said.verdict == Verdict.VIOLATED and said.proof:
            if level is Level.L3 and owners and (said.clause, said.pair) not in owners:
                continue
            fate = _fate(said, clean, mutant.base, pairs[said.pair])
            if fate is Fate.KILLED:
                return _cell(fate, said, spent)
            worst = worst or _cell(fate, said, spent)
    if worst is not None:
        return worst
    if outcome.ended == OUT_OF_TIME:
        return Cell(Fate.TIME_OUT, seconds=outcome.seconds, detail=f"after {outcome.seconds:.0f} s")
    if outcome.ended != FINISHED:
        return Cell(Fate.CRASH, seconds=outcome.seconds, detail=outcome.ended)
    broken = next((said for said in outcome.said if said.verdict == Verdict.ERROR), None)
    if broken is not None:
        return _cell(Fate.ERROR, broken, spent)
    last = next((said for said in reversed(outcome.said) if (said.clause, said.pair) in owners), None)
    said = last or (outcome.said[-1] if outcome.said else None)
    return Cell(Fate.SURVIVED, seconds=spent) if said is None else _cell(Fate.SURVIVED, said, spent)


def _fate(said: Said, clean: Sequence[Outcome], base: str, pair: Pair) -> Fate:
    """What a violation with a counterexample is worth."""
    if said.clause in SHRINKING and not said.shrunk:
        return Fate.UNSHRUNK
    if said.clause in passed(clean, base, pair):
        return Fate.KILLED
    asked = any(said.clause in asked_in(outcome) for outcome in tried(clean, Role.CLEAN, base, pair))
    return Fate.UNCLEAN if asked else Fate.PENDING


def _cell(fate: Fate, said: Said, seconds: float) -> Cell:
    detail = said.detail if fate is Fate.KILLED else f"{said.verdict}: {said.detail}"
    return Cell(fate, said.clause, said.pair, round(seconds, 2), detail, said.proof)


def flagged(control: Control, outcome: Outcome | None) -> str:
    """Why a control does not pass; empty if it does."""
    if outcome is None:
        return "was not run"
    if outcome.ended != FINISHED:
        return outcome.ended
    for said in outcome.said:
        open_ = said.clause in control.open and said.verdict in (Verdict.INCONCLUSIVE, Verdict.SKIPPED)
        if said.verdict not in PASSED and not open_:
            return f"{said.clause} {said.verdict}: {said.detail}"
    return ""


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcomes of one run, judged."""

    wanted: Wanted
    cells: dict[str, Cell]
    controls: dict[str, str]

    @classmethod
    def of(cls, wanted: Wanted, outcomes: Iterable[Outcome]) -> "Tally":
        outcomes = list(outcomes)
        clean = [one for one in outcomes if one.role == Role.CLEAN]
        found = {one.name: one for one in outcomes if one.role == Role.MUTANT}
        seen = {one.name: one for one in outcomes if one.role == Role.CONTROL}
        cells = {one.id: cell(one, found.get(one.id), clean, wanted.level) for one in wanted.mutants}
        shown = wanted.controls if wanted.level is Level.L3 else ()
        return cls(wanted, cells, {str(one): flagged(one, seen.get(str(one))) for one in shown})

    @property
    def killed(self) -> int:
        return sum(one.fate is Fate.KILLED for one in self.cells.values())

    @property
    def complete(self) -> bool:
        """Whether everything was killed that must be, and no control was flagged; at L1 and L2 nothing must be."""
        decided = self.wanted.level is not Level.L3 or self.killed == len(self.cells)
        return decided and not any(self.controls.values())

    def fates(self) -> Iterator[tuple[Fate, list[str]]]:
        """The mutants of every fate but the first."""
        for fate in list(Fate)[1:]:
            names = [name for name, one in self.cells.items() if one.fate is fate]
            if names:
                yield fate, names
