"""Clauses decided without pytest: the same evidence, the same verdicts, as they come."""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from .chapter import GATHERERS, Gather, Result, settle
from .clauses import CLAUSES
from .lab import Lab, Run
from .waivers import Waiver


@cache
def gatherers() -> dict[str, Gather]:
    """The function behind every clause; the first call imports all chapters."""
    package = import_module(__package__)
    for module in iter_modules(package.__path__):
        if module.name.startswith("test_"):
            import_module(f"{__package__}.{module.name}")
    return GATHERERS


def decided(lab: Lab, clauses: Iterable[str], waivers: tuple[Waiver, ...] = ()) -> Iterator[Result]:
    """Decide clauses one after the other in this laboratory; ValueError names one that does not exist."""
    for identifier in clauses:
        if identifier not in CLAUSES:
            raise ValueError(f"clauses: there is no clause {identifier!r}")
        yield settle(lab, CLAUSES[identifier], gatherers()[identifier], waivers)


def run(about: Run, clauses: Iterable[str], waivers: tuple[Waiver, ...] = ()) -> Iterator[Result]:
    """Decide these clauses on the decoder of a run; everything that was made for them is closed behind the last."""
    lab = Lab(about)
    try:
        yield from decided(lab, clauses, waivers)
    finally:
        lab.renew()
