"""What is written down of one history: each request as it was served, and what was not as it must be."""

from dataclasses import dataclass, field
from typing import Any

from specqual.contract import Finished, Request, Round

from .looks import Look


@dataclass
class Played:
    """One request and everything that was seen of it; places are those of steps."""

    request: Request
    request_id: int
    label: str
    samples: list[list[int]]
    rounds: tuple[Round, ...] = ()
    looks: list[Look] = field(default_factory=list)
    final: Finished | None = None
    ended: int | None = None  # the step in which the final event came
    held: bool = False
    paused: tuple[str, int, int] | None = None  # since it is held: what that is, ticks and rounds before
    flying: bool = False  # a pass of it has been run and is not committed yet
    beside: bool = False  # tokens of it came in one tick with those of another, and both had more to say
    cancelled: int | None = None
    disturbed: int | None = None  # the first step that preempted it, or changed chunk or lag while it was live
    neighbours: int | None = None  # the first step in which another request was served beside it
    heir: int | None = None  # the step that submitted it, if somebody had been served before
    bereaved: int | None = None  # the first step that cancelled a neighbour
    warm: int | None = None  # the step that submitted it, if a whole chunk of its prompt had been served before

    @property
    def live(self) -> bool:
        return self.final is None and self.cancelled is None


@dataclass(frozen=True, slots=True)
class Unlike:
    """One observation that is not what a chapter's property asks for, behind the step `place`."""

    chapter: str
    place: int
    what: str
    expected: Any
    actual: Any
    tolerance: float = 0.0
    one: Played | None = None  # whose output it is about
