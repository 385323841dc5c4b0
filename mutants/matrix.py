"""The kill matrix: mutants down, runs across, with the counterexample that the most thorough run found."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from specqual.conformance.verdicts import Profile

from .judgement import Cell, Fate, Tally
from .kinds import DO_NOT_APPLY, KINDS
from .levels import Level
from .mended import MENDED
from .mutant import Mutant, docline
from .plan import LIMITS, Wanted
from .record import BadRecord, alike, load
from .registry import controls, mutants
from .trial import Outcome

PATH = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/")
SHOWN, PROVED = 220, 1500  # characters of a counterexample, in the table and in full


@dataclass(frozen=True, slots=True)
class Column:
    """One run, perhaps in several shards."""

    title: str
    tally: Tally
    commit: str
    sources: str  # digest of the code itself, whatever checkout it lay in
    seconds: float  # of all processes together

    @property
    def must_kill(self) -> bool:
        return self.tally.wanted.level is Level.L3


def columns(folders: Sequence[Path]) -> tuple[Column, ...]:
    """One column for each profile at L3, most thorough first, then one for each lower level. Several folders are shards
    of one run: of the same code, and no mutant in two of them; BadRecord names what is not so. Runs of all clauses are
    no part of it."""
    runs: dict[tuple[str, str], list[tuple[Path, dict[str, Any], list[Outcome]]]] = {}
    for folder in folders:
        header, outcomes = load(folder)
        if not header["every"]:
            runs.setdefault((header["level"], header["profile"]), []).append((folder, header, outcomes))
    return tuple(_column(runs[key]) for key in sorted(runs, key=_place))


def _place(key: tuple[str, str]) -> tuple[bool, str, int]:
    return key[0] != Level.L3, key[0], -list(Profile).index(Profile(key[1]))


def _column(shards: Sequence[tuple[Path, dict[str, Any], list[Outcome]]]) -> Column:
    """The shards of one run; what was chosen counts, whether it was run or not."""
    first, outcomes, chosen = shards[0][1], list[Outcome](), dict[str, Path]()
    for folder, header, found in shards:
        alike(folder, header, shards[0][0], first)
        for name in (*header["mutants"], *header["controls"]):
            if name in chosen:
                raise BadRecord(f"{folder}: {name} was run for {chosen[name]}, too")
            chosen[name] = folder
        outcomes += found
    wanted = Wanted(
        tuple(one for one in mutants().values() if one.id in chosen),
        tuple(one for one in controls() if str(one) in chosen),
        Profile(first["profile"]),
        first["seed"],
        Level(first["level"]),
    )
    title = f"{first['level']}, {first['profile']}"
    return Column(
        title,
        Tally.of(wanted, outcomes),
        str(first["commit"]),
        str(first["sources"]),
        sum(one.seconds for one in outcomes),
    )


def words(column: Column, mutant: Mutant) -> str:
    """A cell of the table."""
    cell = column.tally.cells.get(mutant.id, Cell(Fate.MISSING))
    if cell.fate is Fate.KILLED:
        return f"{cell.clause}, {cell.seconds:.1f} s"
    if not column.must_kill and cell.fate in (Fate.SURVIVED, Fate.TIME_OUT):
        return f"not seen in {LIMITS[column.tally.wanted.level]:.0f} s"
    return f"{cell.fate} {cell.clause}".strip()


def counterexample(found: Sequence[Column], mutant: Mutant) -> Cell:
    """The first kill of the most thorough run."""
    cells = [column.tally.cells[mutant.id] for column in found if mutant.id in column.tally.cells]
    return next((cell for cell in cells if cell.fate is Fate.KILLED), cells[0] if cells else Cell(Fate.MISSING))


def public(text: str, most: int) -> str:
    """Text without the paths of the machine that it was found on, cut to a length."""
    text = PATH.sub("…/", text)
    return text if len(text) <= most else text[: most - 1] + "…"


def proof(cell: Cell, mutant: Mutant) -> str:
    """The counterexample in full, and how to see it again."""
    lines = [line for line in cell.proof.splitlines() if not line.startswith("Replay")]
    return public("\n".join(lines), PROVED) + f"\nReplay     specqual mutants --only {mutant.id}"


def owners(mutant: Mutant) -> str:
    return ", ".join(dict.fromkeys(owner.clause for owner in mutant.owners)) or "any"


def markdown(found: Sequence[Column]) -> str:
    """The matrix as a page of Markdown."""
    return "\n".join(_markdown(found)) + "\n"


def _markdown(found: Sequence[Column]) -> Iterator[str]:
    yield from ("# Kill matrix", "", "Rendered by `specqual matrix`; do not edit.", "")
    yield from (
        "Killed means VIOLATED by a clause that owns the fault, with a counterexample, a shrunk one where the clause",
        "shrinks, while the sound decoder passes the same clause on the same fixtures and seed. Errors, crashes and",
        "time-outs are no kills, and a sound decoder that is stopped passes nothing. All chosen mutants count, run",
        "or not. At L1 and L2 any clause may see it, within 60 s; 'not seen' is a valid cell there.",
        "",
    )
    yield from ("| run | killed | time of all processes | commit | sources |", "|---|---|---|---|---|")
    for one in found:
        counts = f"{one.tally.killed} of {len(one.tally.cells)}"
        run = f"{one.title}, seed {one.tally.wanted.seed}"
        yield f"| {run} | {counts} | {one.seconds:.0f} s | {one.commit} | {one.sources[:12]} |"
    for kind, title in KINDS.items():
        family = [mutant for mutant in mutants().values() if mutant.kind == kind]
        if not family:
            continue
        yield from ("", f"## {kind} {title}", "")
        yield "| mutant | what goes wrong | in | owned by | " + " | ".join(one.title for one in found) + " | seen |"
        yield "|---" * (5 + len(found)) + "|"
        for mutant in family:
            cell = counterexample(found, mutant)
            row = [mutant.id, mutant.mechanism, mutant.base, owners(mutant), *(words(one, mutant) for one in found)]
            yield "| " + " | ".join(_cell(text) for text in (*row, public(cell.detail, SHOWN))) + " |"
    yield from ("", "## What the suite had to learn", "", "Fresh faults that were not seen at first.", "")
    yield from (f"- {name} {lesson}" for name, lesson in MENDED.items())
    yield from ("", "## What does not apply", "")
    yield from (f"- {kind} {reason}" for kind, reason in DO_NOT_APPLY.items())
    yield from ("", "## Controls", "", "Decoders that look unusual and are right.", "")
    yield from ("| control | what it is | " + " | ".join(one.title for one in found if one.tally.controls) + " |",)
    yield "|---" * (2 + sum(bool(one.tally.controls) for one in found)) + "|"
    for control in controls():
        results = (one.tally.controls.get(str(control), "not run") for one in found if one.tally.controls)
        row = (str(control), docline(control.make), *results)
        yield "| " + " | ".join(_cell(text or "passes") for text in row) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def page(found: Sequence[Column]) -> str:
    """The matrix as one self-contained page: no script, no network, every text escaped."""
    families = [
        {
            "kind": kind,
            "title": title,
            "rows": [
                {
                    "mutant": mutant,
                    "owners": owners(mutant),
                    "cells": [
                        {
                            "text": words(one, mutant),
                            "fate": one.tally.cells.get(mutant.id, Cell(Fate.MISSING)).fate.name,
                        }
                        for one in found
                    ],
                    "seen": public(counterexample(found, mutant).detail, SHOWN),
                    "proof": proof(counterexample(found, mutant), mutant),
                }
                for mutant in mutants().values()
                if mutant.kind == kind
            ],
        }
        for kind, title in KINDS.items()
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    tried = [one for one in found if one.tally.controls]
    about = [
        {
            "control": control,
            "what": docline(control.make),
            "results": [one.tally.controls.get(str(control), "not run") or "passes" for one in tried],
        }
        for control in controls()
    ]
    return environment.get_template("matrix.html.j2").render(
        columns=found, tried=tried, families=families, controls=about, absent=DO_NOT_APPLY, mended=MENDED
    )
