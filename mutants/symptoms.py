"""The symptom index, from runs of all clauses on all mutants.

    python -m specqual.mutants.symptoms DIR… --table conformance/symptoms.json > docs/symptoms.md

writes the table that the suite reads, and prints the page for people. Each DIR was written by `specqual mutants --all
--report DIR`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from specqual.conformance.clauses import ordered
from specqual.conformance.symptoms import Index
from specqual.conformance.verdicts import DECIDED, Verdict

from .kinds import KINDS
from .mutant import Mutant
from .plan import passed
from .record import BadRecord, alike, load
from .registry import mutants
from .trial import Outcome, Role


def gathered(folders: Sequence[Path]) -> list[Outcome]:
    """The outcomes of runs of all clauses, of which no two may be unlike; BadRecord names the field."""
    outcomes, first = list[Outcome](), None
    for folder in folders:
        header, found = load(folder)
        if not header["every"]:
            raise BadRecord(f"{folder}: is no run with --all")
        first = first or header
        alike(folder, header, folders[0], first)
        outcomes += found
    return outcomes


def table(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The index as JSON: for each mutant that was seen on its home fixtures, what was decided and what was VIOLATED.
    Only clauses that the sound decoder passes there count."""
    clean = [one for one in outcomes if one.role == Role.CLEAN]
    rows = [row for one in outcomes if one.role == Role.MUTANT for row in _row(mutants().get(one.name), one, clean)]
    kinds = {kind: title for kind, title in KINDS.items() if any(row["kind"] == kind for row in rows)}
    return {"kinds": kinds, "mutants": sorted(rows, key=lambda row: (row["kind"], row["id"]))}


def _row(mutant: Mutant | None, outcome: Outcome, clean: Iterable[Outcome]) -> Iterator[dict[str, Any]]:
    if mutant is None:
        return  # it was renamed since
    sound = passed(clean, mutant.base, mutant.pair)
    home = [one for one in outcome.said if one.pair == str(mutant.pair) and one.clause in sound]
    violated = list(ordered(one.clause for one in home if one.verdict == Verdict.VIOLATED))
    if violated:
        decided = list(ordered(one.clause for one in home if one.verdict in DECIDED))
        yield {
            "id": mutant.id,
            "kind": mutant.kind,
            "mechanism": mutant.mechanism,
            "violated": violated,
            "decided": decided,
        }


def page(index: Index) -> Iterator[str]:
    """The index for people: patterns that most mutants share come first."""
    patterns: dict[tuple[str, ...], list[Any]] = {}
    for one in index.symptoms:
        patterns.setdefault(ordered(one.violated), []).append(one)
    yield from ("# Symptom index", "", "Rendered by `python -m specqual.mutants.symptoms`; do not edit.", "")
    yield "What clauses fail together when a decoder has one known fault. A run with a VIOLATED verdict names the kinds"
    yield "whose pattern is nearest to its own, among clauses that were decided on both sides."
    yield from ("", "| failing clauses | likely kinds | mutants, and what goes wrong in them |", "|---|---|---|")
    for pattern, same in sorted(patterns.items(), key=lambda pair: (len(pair[0]), pair[0])):
        counts = Counter(one.kind for one in same).most_common()
        kinds = "; ".join(f"{kind} {index.kinds[kind]} ({count} of {len(same)})" for kind, count in counts)
        what = "<br>".join(f"{one.id}: {one.mechanism}".replace("|", "\\|") for one in same)
        yield f"| {' '.join(pattern)} | {kinds} | {what} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+")
    parser.add_argument("--table", metavar="FILE", type=Path, required=True)
    args = parser.parse_args()
    content = table(gathered(args.folders))
    args.table.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print("\n".join(page(Index.of(content))))


if __name__ == "__main__":
    main()
