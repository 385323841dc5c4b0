"""The course of a request, and all that an epoch's traffic came to."""

from dataclasses import dataclass, field

from specqual.contract import (
    FinishReason,
    Request,
    Round,
    State,
    Usage,
)

from .plan import Asked


@dataclass(slots=True)
class Course:
    """One request on its way. `phase` says where it stood when it was cancelled; `late` what came behind its end."""

    place: int
    asked: Asked
    request: Request
    request_id: int
    submitted: int  # tick
    samples: list[list[int]]
    reasons: tuple[FinishReason, ...] = ()
    usage: Usage | None = None
    refused: str | None = None
    malformed: str | None = None  # what `submit` had against it
    rounds: tuple[Round, ...] = ()
    phase: str | None = None
    preempted: int = 0  # times
    held: bool = False
    late: int = 0
    beside: int = 0  # the most others under way at one tick

    @property
    def cancelled(self) -> bool:
        return self.phase is not None

    def rounds_of(self, sample: int) -> list[Round]:
        return [r for r in self.rounds if r.sample == sample]


@dataclass(slots=True)
class Looked:
    """The state of a sample as it was at some tick, behind these tokens."""

    place: int
    tokens: tuple[int, ...]
    state: State


@dataclass
class Outcome:
    """All that an epoch's traffic came to. `amiss` are breaches that were seen at once: an oracle and a sentence."""

    courses: list[Course] = field(default_factory=list)
    looked: list[Looked] = field(default_factory=list)
    amiss: list[tuple[str, str]] = field(default_factory=list)
    ticks: int = 0
    idle: int = 0
    bad: int = 0
    widths: list[int] = field(default_factory=list)  # requests under way, tick by tick
    changes: int = 0  # of the schedule
    waited: int = 0  # requests that owned nothing, though nobody held them, at ticks at which states were looked at
