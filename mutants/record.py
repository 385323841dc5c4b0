"""Outcomes on disk: one JSON line each, written as they come, so that an interrupted run can be continued."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specqual.conformance.sources import SUITE, commit, sources, versions

from .plan import Wanted
from .trial import Outcome

FILE = "mutants.jsonl"
FORMAT = 2
CHOSEN = {"mutants", "controls"}  # in which shards of one run differ
PACKAGES = (*SUITE, "decoder", "adapters", "mutants")  # what a mutant is made of


class BadRecord(ValueError):
    """A file that no run of the mutants wrote, or one of another run; names the field or the line."""


def header(wanted: Wanted) -> dict[str, Any]:
    """What must be equal for two runs to be one."""
    return {
        "type": "header",
        "format": FORMAT,
        "commit": commit(),
        "sources": sources(*PACKAGES),
        "versions": versions(),
        "profile": str(wanted.profile),
        "seed": wanted.seed,
        "level": str(wanted.level),
        "every": wanted.every,
        "mutants": [mutant.id for mutant in wanted.mutants],
        "controls": [str(control) for control in wanted.controls],
    }


def alike(folder: Path, header: dict[str, Any], first: Path, other: dict[str, Any]) -> None:
    """Raise BadRecord, naming the field, unless two records are of one run but for what was chosen."""
    for name in sorted((header.keys() | other.keys()) - CHOSEN):
        if header.get(name) != other.get(name):
            said = f"{header.get(name)!r}, where {first} has {other.get(name)!r}"
            raise BadRecord(f"{folder}: {name} is {said}; shards of one run are alike in it")


@dataclass
class Record:
    """The outcomes of one run; without a folder they are not kept."""

    header: dict[str, Any]
    folder: Path | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    @classmethod
    def open(cls, wanted: Wanted, folder: Path | None) -> "Record":
        """A new record, or the one that an interrupted run left; BadRecord if that was another run."""
        record = cls(header(wanted), folder)
        if folder is None:
            return record
        if (folder / FILE).exists():
            found, record.outcomes = load(folder)
            for name in found.keys() | record.header.keys():
                if found.get(name) != record.header.get(name):
                    raise BadRecord(f"--report: {folder} holds a run of another {name}: {found.get(name)}")
        folder.mkdir(parents=True, exist_ok=True)
        lines = [record.header, *(outcome.json() for outcome in record.outcomes)]
        (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return record

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if self.folder is not None:
            with (self.folder / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(outcome.json()) + "\n")

    def has(self, role: str, name: str) -> bool:
        """Whether this trial is over."""
        return any((one.role, one.name) == (role, name) for one in self.outcomes)


def load(folder: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """Header and outcomes of a record; a last line that was not written to its end is left out."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise BadRecord(f"{folder / FILE}: cannot be read ({error.strerror or error})") from None
    lines = list(_lines(folder, text))
    if not lines or lines[0].get("type") != "header" or lines[0].get("format") != FORMAT:
        raise BadRecord(f"{folder / FILE}: line 1 is no header of format {FORMAT}")
    try:
        return lines[0], [Outcome.of(line) for line in lines[1:]]
    except (KeyError, TypeError) as error:
        raise BadRecord(f"{folder / FILE}: holds a line that is no outcome ({error})") from None


def _lines(folder: Path, text: str) -> Iterator[dict[str, Any]]:
    complete = text.split("\n")[:-1]
    for number, line in enumerate(complete, start=1):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise BadRecord(f"{folder / FILE}: line {number} is not JSON ({error})") from None
        if not isinstance(found, dict):
            raise BadRecord(f"{folder / FILE}: line {number} is no line of a record")
        yield found
