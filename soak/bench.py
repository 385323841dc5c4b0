"""The bench: one epoch with everything that its oracles look at, and what they found amiss."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .course import Course, Outcome
from .plan import Plan
from .stage import Stage


@dataclass
class Bench:
    """One epoch before its oracles. `amiss` collects an oracle's name, a sentence, and the place it is about. `salt` is
    the epoch's own, so that the noise of its tokens' places is unlike that of any other epoch. `captured` is how many
    graphs the decoder had when it began."""

    stage: Stage
    plan: Plan
    outcome: Outcome
    salt: int
    captured: int = 0
    amiss: list[tuple[str, str, int | None]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    regrets: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    ranks: list[int] = field(default_factory=list)  # cells of sampled tokens within their laws

    def expect(self, oracle: str, course: Course, what: str, expected: Any, actual: Any) -> bool:
        """Note it if something about a request is not as it must be."""
        if expected == actual:
            return True
        told = f"request {course.place}: {what} is {actual}, must be {expected}"
        self.amiss.append((oracle, told, course.place))
        return False
