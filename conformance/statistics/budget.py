"""One error budget for a whole run: the chance that anything in it accuses a sound decoder is at most ALPHA.

Shares are planned by purpose beforehand. A purpose that is served again, because its clause was run again, gets half
as much each time, so that no number of retries spends more than the share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum

ALPHA = 1e-6  # false alarms of a whole run
PLAN: dict[str, float] = {  # parts of ALPHA; envelopes of rounding serve many clauses
    "LAW-6": 0.30,
    "LAW-7": 0.20,
    "RNG-3": 0.15,
    "TEL-5": 0.05,
    "GE-8": 0.05,
    "rounding of the target": 0.15,
    "rounding of a tiny target": 0.05,
    "rounding of the drafter": 0.05,
}


class Overspent(ValueError):
    """A statement about a budget that does not follow from the plan; names the purpose."""


@dataclass(slots=True)
class Ledger:
    """What one process has taken from the budget: entries "purpose #attempt" with the error rate of each."""

    spent: dict[str, float] = field(default_factory=dict)

    def take(self, purpose: str) -> float:
        """The error rate of one more attempt at this purpose: half its share, then a quarter, and so on."""
        attempt = 1
        while entry(purpose, attempt) in self.spent:
            attempt += 1
        self.spent[entry(purpose, attempt)] = rate(purpose, attempt)
        return rate(purpose, attempt)

    def once(self, purpose: str) -> float:
        """The error rate of a measurement that comes out the same whenever it is repeated: one event, paid once."""
        return self.spent.setdefault(entry(purpose, 1), rate(purpose, 1))


def entry(purpose: str, attempt: int) -> str:
    return f"{purpose} #{attempt}"


def rate(purpose: str, attempt: int) -> float:
    """The error rate of an attempt, counted from 1."""
    if purpose not in PLAN:
        raise Overspent(f"{purpose}: the budget has no share of this name")
    return float(ALPHA * PLAN[purpose] * 0.5**attempt)


def total(ledgers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Everything that was spent, by entry. What several workers measured for themselves is one and the same event.

    Overspent names an entry at another rate than the plan's, and a sum above ALPHA.
    """
    found: dict[str, float] = {}
    for ledger in ledgers:
        for name, alpha in ledger.items():
            purpose, _, attempt = name.rpartition(" #")
            if not (attempt.isascii() and attempt.isdecimal() and len(attempt) < 4 and int(attempt) >= 1):
                raise Overspent(f"{name}: is no entry of a ledger")
            if alpha != rate(purpose, int(attempt)):
                raise Overspent(f"{name}: took {alpha}, its share is {rate(purpose, int(attempt)):.4g}")
            found[name] = alpha
    if fsum(found.values()) > ALPHA:
        raise Overspent(f"the budget: {fsum(found.values()):.4g} were spent of {ALPHA:g}")
    return dict(sorted(found.items()))
