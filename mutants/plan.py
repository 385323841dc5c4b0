"""Which trials a run of the mutants consists of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specqual.conformance.options import listed
from specqual.conformance.verdicts import Profile
from specqual.conformance.workers import PLAYED

from .levels import Level, clauses_at
from .mutant import Control, Mutant, Owner
from .pairs import Pair
from .registry import controls, mutants
from .trial import PASSED, Outcome, Role, Trial, steps

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
        limit = CLEAN_LIMIT if role is Role.CLEAN else self.limit or LIMITS[self.level] * (4 if self.every else 1)
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


def clean_trials(wanted: Wanted) -> Iterator[Trial]:
    """The sound decoders on everything that their mutants are run on. What looks at the same histories stays together;
    those come first, because they take longest."""
    asked: dict[tuple[str, Pair], set[str]] = {}
    for mutant in wanted.mutants:
        for step in mutant_steps(wanted, mutant, None):
            asked.setdefault((mutant.base, step.pair), set()).add(step.clause)
    together, single = list[Trial](), list[Trial]()
    for (base, pair), found in sorted(asked.items(), key=str):
        ordered = clauses_at(Level.L3, frozenset(found))
        played = [clause for clause in ordered if f"test_{clause.split('-')[0].lower()}" in PLAYED]
        for group, kept in [(played, together)] + [([one], single) for one in ordered if one not in played]:
            if group:
                name = clean_name(base, pair, group)
                kept.append(wanted.trial(Role.CLEAN, name, base, steps(group, pair)))
    yield from together
    yield from single


def mutant_steps(wanted: Wanted, mutant: Mutant, clean: Mapping[str, float] | None) -> tuple[Owner, ...]:
    """What a mutant is run on: its owners; or every clause that the level allows on its home, the cheapest first as
    far as `clean` (seconds by clause) knows."""
    if wanted.level is Level.L3 and not wanted.every:
        return mutant.owners
    allowed = clauses_at(wanted.level, listed(wanted.profile))
    if clean is not None:
        allowed = tuple(sorted((clause for clause in allowed if clause in clean), key=clean.__getitem__))
    if wanted.every and wanted.level is Level.L3:  # owners elsewhere, too, so that it is known whether they see it
        return (*steps(allowed, mutant.pair), *(owner for owner in mutant.owners if owner.pair != mutant.pair))
    return steps(allowed, mutant.pair)


def mutant_trials(wanted: Wanted, clean: Sequence[Outcome]) -> Iterator[Trial]:
    """The mutants. At L1 and L2 only clauses that the sound decoder passes are of any use, so `clean` is asked."""
    for mutant in wanted.mutants:
        seconds = None
        if wanted.level is not Level.L3:
            seconds = passed(clean, mutant.base, mutant.pair)
        found = mutant_steps(wanted, mutant, seconds)
        yield wanted.trial(Role.MUTANT, mutant.id, mutant.decoder, found, stop=not wanted.every)


def passed(clean: Iterable[Outcome], base: str, pair: Pair) -> dict[str, float]:
    """Seconds of the clauses that the sound decoder passed on these fixtures."""
    prefix = f"{base} on {pair}: "
    return {
        said.clause: said.seconds
        for outcome in clean
        if outcome.name.startswith(prefix)
        for said in outcome.said
        if said.verdict in PASSED
    }


def control_trials(wanted: Wanted) -> Iterator[Trial]:
    for control in wanted.controls if wanted.level is Level.L3 else ():
        yield wanted.trial(Role.CONTROL, str(control), control.decoder, steps(control.clauses, control.pair))
