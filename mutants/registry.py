"""All mutants and controls: what the modules of this package state about their faults, collected."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from specqual.conformance.clauses import CLAUSES

from .mutant import Control, Mutant, faults_of, unowned_in


class BadRegistry(ValueError):
    """A module that states something about its faults which cannot be; names the fault."""


@cache
def modules() -> tuple[Any, ...]:
    """The modules of this package and of the packages in it."""
    package = import_module(__package__)
    names = sorted(found.name for found in walk_packages(package.__path__, f"{__package__}."))
    return tuple(import_module(name) for name in names)


def refuse(stated: Sequence[Mutant], *about: Any) -> None:
    """Raise BadRegistry if two mutants share a name, if an owning clause is unknown, or if a module holds a fault that
    it says nothing about."""
    found: dict[str, Mutant] = {}
    for mutant in stated:
        if mutant.id in found:
            raise BadRegistry(f"{mutant.id}: both {mutant.decoder} and {found[mutant.id].decoder} are named so")
        unknown = [owner.clause for owner in mutant.owners if owner.clause not in CLAUSES]
        if unknown:
            raise BadRegistry(f"{mutant.id}: {unknown[0]} is no clause")
        found[mutant.id] = mutant
    known = {mutant.make for mutant in stated}
    for module in about:
        for make in faults_of(module):
            if make not in known:
                raise BadRegistry(f"{make.__name__}: {module.__name__} names neither its owner nor its home")


@cache
def mutants() -> Mapping[str, Mutant]:
    """Every mutant by its id, ordered by kind; BadRegistry says what is wrong with one."""
    stated = [mutant for module in modules() for mutant in getattr(module, "PLANTED", ())]
    for module in modules():
        stated += unowned_in("optimised", *getattr(module, "ROWS", ()))
    refuse(stated, *modules())
    return {mutant.id: mutant for mutant in sorted(stated, key=lambda one: (one.kind, one.id))}


@cache
def controls() -> tuple[Control, ...]:
    """Every control on every pair of fixtures that it is tried on."""
    return tuple(control for module in modules() for control in getattr(module, "CONTROLS", ()))
