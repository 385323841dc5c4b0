"""One error budget for a whole run: the chance that anything in it accuses a sound decoder is at most ALPHA.

Shares are planned by purpose beforehand. A purpose that is served again, because its clause was run again, gets half
as much each time, so that no number of retries spends more than the share.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ALPHA = 1e-6  # false alarms of a whole run
PLAN: dict[str, float] = {  # parts of ALPHA; envelopes of rounding serve many clauses
    "LAW-6": 0.30,
    "LAW-7": 0.20,
    "RNG-3": 0.15,
    "TEL-5": 0.05,
    "GE-8": 0.05,
    "rounding of the target": 0.075,
    "rounding of the drafter": 0.025,
    "rounding of another target": 0.10,
    "rounding of another drafter": 0.05,
}
MEASUREMENTS: dict[str, int] = {  # how often each is taken at most: of the run's own once, of others once a checkpoint
    name: 8 if "another" in name else 1 for name in PLAN if name.startswith("rounding of")
}
SUBJECT = re.compile("[0-9a-f]{8}")  # a fingerprint of the checkpoint


class Overspent(ValueError):
    """A statement about a budget that does not follow from the plan; names the purpose."""


@dataclass(slots=True)
class Ledger:
    """What one process has taken from the budget: entries "CLAUSE #attempt", or the name of a measurement, with the
    error rate of each. Laboratories for other checkpoints take from the ledger of their run."""

    spent: dict[str, float] = field(default_factory=dict)

    def take(self, clause: str) -> float:
        """The error rate of one more attempt at this clause: half its share, then a quarter, and so on."""
        attempt = 1
        while entry(clause, attempt) in self.spent:
            attempt += 1
        self.spent[entry(clause, attempt)] = rate(clause, attempt)
        return rate(clause, attempt)

    def once(self, purpose: str, subject: str = "") -> float:
        """The error rate of a measurement that comes out the same whenever it is repeated: one event, paid once.

        `subject` says which of the other checkpoints was measured; "" for the run's own.
        """
        name = f"{purpose}: {subject}" if subject else purpose
        return self.spent.setdefault(name, rate(*parsed(name)))


def entry(clause: str, attempt: int) -> str:
    return f"{clause} #{attempt}"


def rate(purpose: str, attempt: int | None) -> float:
    """The error rate of an attempt, counted from 1; with None, of a measurement."""
    if purpose not in PLAN:
        raise Overspent(f"{purpose}: the budget has no share of this name")
    share = ALPHA * PLAN[purpose]
    return float(share / MEASUREMENTS[purpose] if attempt is None else share * 0.5**attempt)


def parsed(name: str) -> tuple[str, int | None]:
    """The purpose of an entry, and which attempt it was; None for a measurement."""
    measurement, _, subject = name.partition(": ")
    several = MEASUREMENTS.get(measurement, 0)
    if several and (name == measurement if several == 1 else SUBJECT.fullmatch(subject)):
        return measurement, None
    purpose, _, attempt = name.rpartition(" #")
    if not (attempt.isascii() and attempt.isdecimal() and len(attempt) < 4 and int(attempt) >= 1):
        raise Overspent(f"{name}: is no entry of a ledger")
    return purpose, int(attempt)


def total(ledgers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Everything that was spent, by entry. Attempts of several processes are attempts, whatever number each of them
    gave to its own; what they measured for themselves is one and the same event.

    Overspent names an entry at another rate than the plan's.
    """
    found: dict[str, float] = {}
    for ledger in ledgers:
        for name, alpha in ledger.items():
            purpose, attempt = parsed(name)
            if alpha != rate(purpose, attempt):
                raise Overspent(f"{name}: took {alpha}, its share is {rate(purpose, attempt):.4g}")
            found[name] = alpha if attempt is None else found.get(name, 0.0) + alpha
    return dict(sorted(found.items()))


def overdrawn(spent: Mapping[str, float]) -> list[str]:
    """Purposes on which more was spent than their share, in words; none where no clause was run over and over in
    processes that did not know of one another, and no more was measured than is planned."""
    sums: dict[str, float] = {}
    for name, alpha in spent.items():
        purpose, _ = parsed(name)
        sums[purpose] = sums.get(purpose, 0.0) + alpha
    return [
        f"{purpose}: {alpha:.4g} of the error budget were spent, its share is {ALPHA * PLAN[purpose]:.4g}"
        for purpose, alpha in sums.items()
        if alpha > ALPHA * PLAN[purpose] * (1 + 1e-9)
    ]
