"""How often a hazard must occur where once is not enough: what clauses ask for, and what `verify` holds them to."""

from collections.abc import Callable, Mapping

from specqual.contract import Limits

from .facts import Facts
from .lab import Effort

ROUNDS = 11_000  # of one request: more than any counter of fourteen bits, or of a few thousand, holds
APART = 2  # outputs that are unlike one another
AGAIN = 4  # ticks with every request of a wave
WAVES = 2  # ticks at either end of an oscillation
WINDOWS = 2  # that a long output passes


def held(limits: Limits) -> int:
    """The requests that are there at once where a batch is full."""
    return min(limits.max_batch, 16)


def far(limits: Limits, effort: Effort) -> int:
    """The tokens of a long output."""
    return min(8 * effort.tokens, 2048, limits.max_context - 10)


def rejected(tokens: int, limits: Limits) -> int:
    """The rounds rejected whole in an output of so many tokens."""
    return max(1, min(tokens, limits.max_context) // 2)


def owed(clause: str, hazard: str, facts: Facts) -> int:
    """How often a hazard must occur at least in the evidence of a clause."""
    return next((count(facts) for name, count in OFTEN.get(clause, {}).items() if hazard.startswith(name)), 1)


CUT = frozenset({"page-edges", "chunk-edges", "windows"})  # features without which outputs are shorter


def _whole(facts: Facts) -> int:
    limits = facts.known.limits
    most = min(facts.effort.rejections, max(1, limits.max_context - 4))
    return 1 if facts.without & CUT else rejected(most, limits)


OFTEN: Mapping[str, Mapping[str, Callable[[Facts], int]]] = {
    "RNG-3": {"different outputs": lambda f: APART},
    "SMP-4": {"accepted lengths": lambda f: f.longest + 1},
    "REC-3": {"rounds rejected whole": _whole},
    "LIM-5": {"requests at once": lambda f: held(f.known.limits)},
    "LIM-6": {
        "tokens of the longest output": lambda f: far(f.known.limits, f.effort),
        "windows passed": lambda f: WINDOWS,
    },
    "LIM-7": {"tokens": lambda f: ROUNDS, "rejections": lambda f: ROUNDS},
    "GRF-1": {"ticks with": lambda f: AGAIN},
    "GRF-3": {"ticks with": lambda f: AGAIN},
    "GRF-4": {"ticks with": lambda f: WAVES},
    "GRF-5": {"ticks with": lambda f: AGAIN},
    "GRF-6": {"ticks with": lambda f: WAVES},
    "GRF-7": {"batches grown past": lambda f: WAVES},
}
"""By clause and by how a hazard begins; every other one must occur once."""
