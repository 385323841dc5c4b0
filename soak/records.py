"""Records: what epochs establish, as data that goes from the process that served them into the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specqual.conformance.verdicts import Verdict

DECODER, SUITE = "decoder", "suite"  # what stands for an oracle where the one or the other failed
PROCESS, CUT = "process", "cut off"  # where a worker died, and where an epoch had no end


@dataclass(frozen=True, slots=True)
class Increment:
    """What one epoch adds to one test of a law: counts per cell of every context, and the epoch's own log E (nats).

    Summed over epochs the counts give the log E that grows all night; an epoch's own are for product and mean. `laws`
    are those of the contexts, known up to a total variation of `slack`.
    """

    test: str
    log_e: float
    samples: int
    counts: Mapping[str, tuple[int, ...]]
    laws: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    slack: float = 0.0


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong in an epoch: the oracle that saw it, one sentence, and all that is needed to run it again, which
    is gathered for the first of an epoch only."""

    oracle: str
    detail: str
    bundle: Mapping[str, Any] | None = None

    @property
    def verdict(self) -> Verdict:
        """What it makes of the run that it was found in."""
        return {DECODER: Verdict.ERROR, SUITE: Verdict.ERROR, PROCESS: Verdict.ERROR, CUT: Verdict.INCONCLUSIVE}.get(
            self.oracle, Verdict.VIOLATED
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation as a journal keeps it: at which `place` among all of its epoch, and when that was recorded. What was
    seen of the process that served an epoch has places below zero."""

    time: float
    scenario: str
    epoch: int
    place: int
    violation: Violation

    def __str__(self) -> str:
        one = self.violation
        return f"{one.verdict} {self.scenario} epoch {self.epoch}, {one.oracle}: {one.detail}"


@dataclass(frozen=True, slots=True)
class Epoch:
    """What an epoch established: a pure function of the run's seed, the scenario and the epoch's number.

    `counts` are hazards and totals that add up over epochs; those named `most …` are largest values. `histograms` map a
    bin's name to its count and add up, too. `digest` is that of everything that was put out. `violations` are all that
    were found, of which a journal keeps some.
    """

    scenario: str
    number: int
    verdict: str
    digest: str
    counts: Mapping[str, int] = field(default_factory=dict)
    evidence: tuple[Increment, ...] = ()
    histograms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()

    @property
    def broke(self) -> bool:
        """Whether it has no proper end, whatever was found before."""
        return any(one.verdict is Verdict.ERROR for one in self.violations)


@dataclass(frozen=True, slots=True)
class Served:
    """When, where and how long an epoch ran: what another run may have otherwise. Seconds; `worker` from 0."""

    worker: int
    started: float
    seconds: float
    oracle_seconds: float
