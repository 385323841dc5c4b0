"""Features of what the suite draws, by name, so that each can be switched off: `--without FEATURE`.

A clause is about a hazard, and a run in which the hazard never occurred says nothing. The generators ask `Lab.has`
before they draw a feature; a clause counts the hazard in what it saw, never in what it asked for. So without the
feature, the clauses that need it are INCONCLUSIVE; `tests/test_vacuity.py` switches off one after the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """What is drawn, and the clauses that stay open without it."""

    name: str
    drawn: str
    clauses: tuple[str, ...]


def _table(*rows: tuple[str, str, str]) -> dict[str, Feature]:
    return {name: Feature(name, drawn, tuple(clauses.split())) for name, drawn, clauses in rows}


FEATURES = _table(
    ("silent-rounds", "scripted rounds without a draft", "LIVE-2 RWD-2 REC-2"),
    ("right-drafts", "scripted drafts that are right", "GE-4 SMP-4 FIN-2 FIN-6 RWD-2 REC-2"),
    ("wrong-drafts", "scripted drafts that are wrong", "GE-4 SMP-3 SMP-4 SMP-6 RWD-2 REC-3"),
    ("unequal-drafts", "rows of one pass with unlike draft lengths", "SMP-2 SMP-3 REC-2 GRF-1"),
    (
        "batches",
        "several requests at once",
        "GE-5 RNG-1 RNG-2 SMP-1 SMP-2 SMP-3 REC-2 ISO-1 ISO-2 CXL-3 NUM-4 LIM-5 GRF-4 GRF-7 TEL-2 GE-8",
    ),
    ("mixed-rows", "greedy and sampled rows in one batch", "SMP-1 SMP-2 SMP-3"),
    ("page-edges", "lengths at the edges of pages of 16 tokens", "GE-1 RWD-2 RES-3"),
    ("chunk-edges", "prompts of more than a chunk of 64 tokens", "RWD-2 SCH-3 RES-2"),
    ("windows", "lengths beyond a sliding window", "GE-1 RWD-2 RES-3"),
    ("temperatures", "temperatures other than one", "LAW-2 SMP-3"),
    ("filters", "top-k, top-p and min-p", "LAW-2 SMP-3"),
    ("penalties", "penalties and logit bias", "SMP-4 SMP-6 SMP-7"),
    ("samples", "several samples of a request", "RNG-1 RNG-3"),
    ("seeds", "several seeds", "RNG-3"),
    ("prefixes", "prompts that begin as an earlier one", "RES-2"),
    ("full-batches", "as many requests at once as a batch holds", "LIM-5"),
    ("long-outputs", "outputs of hundreds of tokens, and of 11,000 rounds", "LIM-6 LIM-7"),
    ("buckets", "padding buckets", "SCH-1 GRF-2 GRF-3 GRF-7"),
    ("no-laws", "proposals with laws that are none", "NUM-5"),
    ("no-numbers", "requests behind a row that is no number", "NUM-4"),
    ("log-probabilities", "log-probabilities beside the tokens", "TEL-2"),
    ("cancelled-beside-others", "cancellation of one request of a batch", "TEL-1 TEL-4"),
    ("lag", "a commit lag of one tick", "SCH-1 SCH-2 CXL-2"),
    ("chunks", "chunk sizes that change", "SCH-1"),
    ("crowds", "many requests at once, then few, then many", "GRF-7"),
    ("preempted-while-waiting", "preemption before a request's first round", "SCH-2"),
    ("preempted-while-being-filled", "preemption between two chunks of a prompt", "SCH-2"),
    ("preempted-behind-a-round", "preemption between two rounds", "SCH-2"),
    ("preempted-in-flight", "preemption with a round in flight", "SCH-2"),
    ("cancelled-while-waiting", "cancellation before a request's first round", "CXL-2"),
    ("cancelled-while-being-filled", "cancellation between two chunks of a prompt", "CXL-2"),
    ("cancelled-behind-a-round", "cancellation between two rounds", "CXL-2"),
    ("cancelled-while-held", "cancellation of a preempted request", "CXL-2"),
    ("cancelled-in-flight", "cancellation with a round in flight", "CXL-2"),
    ("stops", "stop ids", "FIN-1 FIN-2 TEL-1"),
    ("budgets", "token budgets that end within a span", "FIN-3"),
)


def features(patterns: Iterable[str]) -> frozenset[str]:
    """The names that these patterns mean, each a name or how several begin; ValueError for one that means none."""
    found: set[str] = set()
    for pattern in patterns:
        names = {pattern} if pattern in FEATURES else {name for name in FEATURES if name.startswith(pattern)}
        if not pattern or not names:
            raise ValueError(f"there is no feature {pattern!r}; there are {', '.join(FEATURES)}")
        found |= names
    return frozenset(found)


def needed_by(clause: str) -> Sequence[str]:
    """The features without which a clause stays open."""
    return [feature.name for feature in FEATURES.values() if clause in feature.clauses]
