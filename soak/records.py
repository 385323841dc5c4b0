"""Records: what epochs establish, as data that goes from the process that served them into the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    """What went wrong in an epoch: the oracle that saw it, one sentence, and all that is needed to run it again."""

    oracle: str
    detail: str
    bundle: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Epoch:
    """What an epoch established: a pure function of the run's seed, the scenario and the epoch's number.

    `counts` are hazards and totals that add up over epochs; those named `most …` are largest values. `histograms` map a
    bin's name to its count and add up, too. `digest` is that of everything that was put out.
    """

    scenario: str
    number: int
    verdict: str
    digest: str
    counts: Mapping[str, int] = field(default_factory=dict)
    evidence: tuple[Increment, ...] = ()
    histograms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """When, where and how long an epoch ran: what another run may have otherwise. Seconds; `worker` from 0."""

    worker: int
    started: float
    seconds: float
    oracle_seconds: float
