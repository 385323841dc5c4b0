"""What is known about a planted fault, and how a module states it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specqual.contract import Make

from .pairs import Pair

NAMED = re.compile(r"[a-z](\d\d)[a-z]\d?")
"""The name of a fault's function: a letter, its kind in two digits, and which fault of it."""


def docline(make: Make) -> str:
    """What a factory's docstring says, on one line."""
    return " ".join((make.__doc__ or "").split())


@dataclass(frozen=True, slots=True)
class Owner:
    """A clause that must see the fault, and the fixtures that it sees it on."""

    clause: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class Mutant:
    """A decoder with exactly one fault. `base` names the decoder that is sound but for it, as `--decoder` does; `pair`
    is where the fault is at home. Without owners, any clause may see it there."""

    make: Make
    base: str
    pair: Pair
    owners: tuple[Owner, ...] = ()

    @property
    def id(self) -> str:
        return self.make.__name__.capitalize()

    @property
    def kind(self) -> str:
        return f"K{self.make.__name__[1:3]}"

    @property
    def mechanism(self) -> str:
        """What goes wrong and when it shows, on one line."""
        return docline(self.make)

    @property
    def decoder(self) -> str:
        """The name that `--decoder` takes."""
        return f"{self.make.__module__}:{self.make.__name__}"

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Control:
    """A decoder that looks unusual and is right: these clauses must not flag it. Those of `open` may stay undecided,
    because what they are about never happens there."""

    make: Make
    pair: Pair
    clauses: tuple[str, ...]
    open: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        return self.make.__name__.capitalize()

    @property
    def decoder(self) -> str:
        return f"{self.make.__module__}:{self.make.__name__}"

    def __str__(self) -> str:
        return f"{self.id} on {self.pair}"


Row = tuple[str, Pair, Sequence[Make]]
"""A clause, the fixtures that it is run on, and the faults that it must see there."""


def planted_in(base: str, *rows: Row) -> tuple[Mutant, ...]:
    """The mutants of a module, from the clauses that own them; the first row of a fault names its home."""
    owners: dict[Make, list[Owner]] = {}
    for clause, pair, makes in rows:
        for make in makes:
            owners.setdefault(make, []).append(Owner(clause, pair))
    return tuple(Mutant(make, base, own[0].pair, tuple(own)) for make, own in owners.items())


def unowned_in(base: str, *rows: tuple[Make, str, str, str]) -> tuple[Mutant, ...]:
    """Mutants written without knowing the clauses: functions, their kinds, and fixtures on which they show."""
    found = tuple(Mutant(make, base, Pair(target, draft)) for make, _, target, draft in rows)
    for mutant, (_, kind, _, _) in zip(found, rows, strict=True):
        if mutant.kind != kind:
            raise ValueError(f"{mutant.id}: is named as one of {mutant.kind} and stated as one of {kind}")
    return found


def faults_of(module: object) -> Iterator[Make]:
    """The faults that are written in a module, registered or not."""
    for name, value in vars(module).items():
        if NAMED.fullmatch(name) and getattr(value, "__module__", None) == getattr(module, "__name__", None):
            yield value
