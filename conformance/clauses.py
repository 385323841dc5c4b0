"""Every clause that this suite decides: `--list`, the report and docs/SPEC.md derive from this table.

The rows stand in `specification`, by group of chapters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .specification import checkpoint, graphs, greedy, limits, numerics, requests, sampling, state, telemetry
from .verdicts import Level, Profile, Status, Verdict, exit_status


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement. `needs` names the optional protocols of the contract without which it is skipped."""

    id: str
    level: Level
    requirement: str
    needs: tuple[str, ...]
    decided: str  # how
    source: str  # where the requirement comes from: kinds of known faults, the method's definition

    @property
    def chapter(self) -> str:
        return self.id.split("-")[0]


CHAPTERS = {
    "LIVE": "liveness of the check",
    "GE": "greedy equality",
    "LAW": "output law",
    "RNG": "random streams",
    "SMP": "sampling parameters",
    "FIN": "finish",
    "RWD": "rewind",
    "REC": "recurrent state",
    "ISO": "isolation",
    "SCH": "schedule",
    "CXL": "cancellation",
    "RES": "resources",
    "CKP": "checkpoint",
    "DRF": "drafter",
    "NUM": "numerics",
    "LIM": "limits",
    "GRF": "graphs",
    "TEL": "telemetry",
    "ERR": "bad input",
}

_ROWS = (
    *greedy.ROWS,
    *sampling.ROWS,
    *state.ROWS,
    *checkpoint.ROWS,
    *numerics.ROWS,
    *limits.ROWS,
    *graphs.ROWS,
    *telemetry.ROWS,
    *requests.ROWS,
)

CLAUSES: dict[str, Clause] = {
    row[0]: Clause(row[0], row[1], row[2], tuple(row[3].split()), row[4], row[5]) for row in _ROWS
}
PLACES = {identifier: place for place, identifier in enumerate(CLAUSES)}
JUDGE_ONLY = frozenset({"LAW-1"})  # says something about the suite, nothing about the decoder
SHRINKING = frozenset(
    "GE-1 GE-2 GE-3 GE-4 GE-6 LAW-1 SMP-7 RWD-1 REC-1 ISO-1 SCH-1 CXL-1 RES-1 "
    "GRF-1 GRF-2 GRF-3 GRF-4 GRF-5 GRF-7".split()
)  # clauses whose counterexample is the smallest that was found, and says so
PLAYED = frozenset({"RWD", "REC", "ISO", "SCH", "CXL", "RES"})  # chapters that look at the same histories


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Clause ids in the order of the table, each once; those that the suite no longer has come last."""
    return tuple(sorted(set(names), key=lambda name: (PLACES.get(name, len(PLACES)), name)))


def status_of(results: Sequence[Mapping[str, Any]], profile: Profile) -> Status:
    """Exit status of the lines of a run, by clause and verdict; the judge's own clauses count only if they fail."""
    found = [(line["clause"], CLAUSES[line["clause"]].level, Verdict(line["verdict"])) for line in results]
    decoder = [one for one in found if one[0] not in JUDGE_ONLY or one[2] in (Verdict.VIOLATED, Verdict.ERROR)]
    return exit_status(decoder or found, profile)


def matching(pattern: str) -> Iterator[Clause]:
    """Clauses with this id, of this chapter, or whose id starts with the pattern."""
    exact = CLAUSES.get(pattern.upper())
    if exact is not None:
        yield exact
        return
    yield from (clause for clause in CLAUSES.values() if clause.id.startswith(pattern.upper()))


def selected(patterns: Iterable[str]) -> frozenset[str]:
    """The ids that these patterns match; ValueError names one that matches none."""
    found = set[str]()
    for pattern in patterns:
        ids = {clause.id for clause in matching(pattern)}
        if not ids:
            raise ValueError(f"no clause is named {pattern!r} or begins with it")
        found |= ids
    return frozenset(found)


def listing() -> str:
    """The table that `--list` prints: one clause a paragraph, chapters as headings."""
    lines: list[str] = []
    for chapter, title in CHAPTERS.items():
        lines += [f"{chapter}  {title}", ""]
        for clause in (c for c in CLAUSES.values() if c.chapter == chapter):
            needs = ", ".join(clause.needs) or "nothing optional"
            lines += [f"  {clause.id} {clause.level}: {clause.requirement}"]
            lines += [f"      needs {needs}; decided by {clause.decided}; from {clause.source}", ""]
    return "\n".join(lines)
