"""Which trials a run of the mutants consists of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from specqual.conformance.clauses import CLAUSES, PLAYED
from specqual.conformance.options import listed
from specqual.conformance.symptoms import known
from specqual.conformance.verdicts import Profile, Verdict

from .levels import Level, clauses_at
from .mutant import Control, Mutant, Owner
from .pairs import Pair
from .registry import controls, mutants
from .trial import FINISHED, PASSED, Outcome, Role, Trial, steps

LIMITS = {Level.L1: 60.0, Level.L2: 60.0, Level.L3: 900.0}  # seconds of one mutant
CLEAN_LIMIT = 3600.0  # seconds; nothing is learnt from a sound decoder that was stopped


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is run: which mutants and controls, what of them is to be seen, and how thoroughly. `every` asks for all
    clauses of the profile in the place of the owning ones, and does not stop at the first that is VIOLATED."""

    mutants: tuple[Mutant, ...]
    controls: tuple[Control, ...]
    profile: Profile = Profile.QUICK
    seed: int = 0
    level: Level = Level.L3
    every: bool = False
    limit: float | None = None  # seconds; None is that of the level

    def trial(self, role: Role, name: str, decoder: str, wanted: Iterable[Owner], *, stop: bool = False) -> Trial:
        limit = (
            CLEAN_LIMIT
            if role in (Role.CLEAN, Role.ORDER)
            else self.limit or LIMITS[self.level] * (4 if self.every else 1)
        )
        return Trial(role, name, decoder, tuple(wanted), self.level, self.profile, self.seed, limit, stop)


def chosen(only: Sequence[str], kinds: Sequence[str]) -> tuple[tuple[Mutant, ...], tuple[Control, ...]]:
    """Mutants and controls of these names or kinds, all if none are given; ValueError for an unknown one."""
    names, families = {name.upper() for name in only}, {kind.upper() for kind in kinds}
    all_controls = {control.id.upper() for control in controls()}
    known = {mutant.id.upper(): mutant for mutant in mutants().values()}
    for name in names - known.keys() - all_controls:
        raise ValueError(f"--only: there is no mutant or control {name!r}")
    for kind in families - {mutant.kind for mutant in known.values()}:
        raise ValueError(f"--kind: there is no mutant of kind {kind!r}")
    if not names and not families:
        return tuple(known.values()), controls()
    return (
        tuple(one for name, one in known.items() if name in names or one.kind in families),
        tuple(control for control in controls() if control.id.upper() in names),
    )


def clean_name(base: str, pair: Pair, clauses: Sequence[str]) -> str:
    return f"{base} on {pair}: {' '.join(clauses)}"


def order_trials(wanted: Wanted) -> Iterator[Trial]:
    """At L1 and L2 a minute is all that a mutant gets, so sound decoders say at quick which clauses are of use and how
    cheap they are."""
    homes = {(mutant.base, mutant.pair) for mutant in wanted.mutants if wanted.level is not Level.L3}
    for base, pair in sorted(homes, key=str):
        asked = steps(clauses_at(wanted.level, listed(wanted.profile)), pair)
        trial = wanted.trial(Role.ORDER, clean_name(base, pair, ()), base, asked)
        yield replace(trial, profile=Profile.QUICK)


def clean_trials(wanted: Wanted, outcomes: Sequence[Outcome]) -> Iterator[Trial]:
    """The sound decoders on what mutants were VIOLATED by, as far as that is not known yet. What looks at the same
    histories stays together; those come first, because they take longest."""
    asked: dict[tuple[str, Pair], set[str]] = {}
    by_name = {mutant.id: mutant for mutant in wanted.mutants}
    for outcome in outcomes:
        mutant = by_name.get(outcome.name)
        for step in violated(mutant, outcome) if mutant is not None else ():
            asked.setdefault((mutant.base, step.pair), set()).add(step.clause)
    together, single = list[Trial](), list[Trial]()
    for (base, pair), found in sorted(asked.items(), key=str):
        known = frozenset[str]().union(*map(asked_in, tried(outcomes, Role.CLEAN, base, pair)))
        ordered = clauses_at(Level.L3, frozenset(found - known))
        played = [clause for clause in ordered if CLAUSES[clause].chapter in PLAYED]
        for group, kept in [(played, together)] + [([one], single) for one in ordered if one not in played]:
            if group:
                name = clean_name(base, pair, group)
                kept.append(wanted.trial(Role.CLEAN, name, base, steps(group, pair)))
    yield from together
    yield from single


def violated(mutant: Mutant, outcome: Outcome) -> Iterator[Owner]:
    """The clauses that a mutant violated, and the fixtures."""
    pairs = {str(pair): pair for pair in (mutant.pair, *(owner.pair for owner in mutant.owners))}
    for said in outcome.said if outcome.role == Role.MUTANT else ():
        if said.verdict == Verdict.VIOLATED:
            yield Owner(said.clause, pairs[said.pair])


def mutant_steps(wanted: Wanted, mutant: Mutant, outcomes: Sequence[Outcome]) -> tuple[Owner, ...]:
    """What a mutant is run on: its owners; or every clause on its home, first those that the symptom index says have
    seen it, then those that own others of its kind; or at L1 and L2 those that are of use there, the cheapest first."""
    if wanted.level is not Level.L3:
        useful = {
            said.clause: said.seconds
            for outcome in tried(outcomes, Role.ORDER, mutant.base, mutant.pair)
            for said in outcome.said
            if said.verdict not in (Verdict.SKIPPED, Verdict.ERROR)
        }
        return steps(sorted(useful, key=useful.__getitem__), mutant.pair)
    if mutant.owners and not wanted.every:
        return mutant.owners
    kin = {owner.clause for other in mutants().values() if other.kind == mutant.kind for owner in other.owners}
    allowed = clauses_at(wanted.level, listed(wanted.profile))
    seen = {clause for symptom in known().symptoms if symptom.id == mutant.id for clause in symptom.violated}
    found = steps(sorted(allowed, key=lambda clause: (clause not in seen, clause not in kin)), mutant.pair)
    return (*found, *(owner for owner in mutant.owners if owner.pair != mutant.pair))


def mutant_trials(wanted: Wanted, outcomes: Sequence[Outcome]) -> Iterator[Trial]:
    for mutant in wanted.mutants:
        found = mutant_steps(wanted, mutant, outcomes)
        yield wanted.trial(Role.MUTANT, mutant.id, mutant.decoder, found, stop=not wanted.every)


def tried(outcomes: Iterable[Outcome], role: Role, base: str, pair: Pair) -> Iterator[Outcome]:
    """What the sound decoder was run on these fixtures for, in this role."""
    prefix = clean_name(base, pair, ())
    return (outcome for outcome in outcomes if outcome.role == role and outcome.name.startswith(prefix))


def passed(outcomes: Iterable[Outcome], base: str, pair: Pair) -> frozenset[str]:
    """The clauses that the sound decoder passed on these fixtures, in every run of them; a run that was stopped or died
    passes nothing."""
    good, bad = set[str](), set[str]()
    for outcome in tried(outcomes, Role.CLEAN, base, pair):
        for said in outcome.said:
            (good if outcome.ended == FINISHED and said.verdict in PASSED else bad).add(said.clause)
        bad |= asked_in(outcome) - {said.clause for said in outcome.said}
    return frozenset(good - bad)


def asked_in(outcome: Outcome) -> frozenset[str]:
    """The clauses that a run of the sound decoder was for, whether it came to them or not."""
    return frozenset(outcome.name.rpartition(": ")[2].split())


def control_trials(wanted: Wanted) -> Iterator[Trial]:
    for control in wanted.controls if wanted.level is Level.L3 else ():
        yield wanted.trial(Role.CONTROL, str(control), control.decoder, steps(control.clauses, control.pair))
