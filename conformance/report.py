"""The report of a run: JSON lines under a hash chain, from which the page, the JUnit file and `verify` derive.

Line 1 is the header, the last one the footer; a file without footer is a truncated report. Each line carries the
SHA-256 of the line before it and of itself, which shows accidents and careless edits, not a forger: a verdict is
believed because it follows from the evidence beside it.
"""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from specqual.contract.keys import parse_json

from .clauses import ordered
from .html import page
from .junit import junit
from .lab import Run
from .sources import SUITE, commit, sources, versions
from .statistics.budget import ALPHA, total

FORMAT = 4
LARGEST_FILE = 512 * 2**20  # bytes
LARGEST_LINE = 64 * 2**20
MOST_LINES = 10_000
ROOT = "0" * 64
RENDERINGS = {"index.html": page, "junit.xml": junit}
AGAIN = ("clause", "verdict", "spent")  # what is kept of a clause that was run again
ABOUT = frozenset({"claims", "offers"})  # of the decoder: they come with a verdict and stand in the header


class BadReport(ValueError):
    """A report that is truncated, altered or not a report; names the line."""


def canonical(line: dict[str, Any]) -> str:
    return json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sealed(line: dict[str, Any], before: str) -> dict[str, Any]:
    """The line with the hash of itself and of everything before it."""
    return line | {"hash": hashlib.sha256((before + canonical(line)).encode()).hexdigest()}


def header(run: Run, selected: Iterable[str], about: Mapping[str, Any]) -> dict[str, Any]:
    """What the verdicts are about; `about` holds the claims and the protocols of the decoder, if it could be made."""
    setup = run.setup
    return {
        "type": "header",
        "format": FORMAT,
        "date": str(datetime.now(UTC).date()),
        "commit": commit(),
        "sources": sources(*SUITE),
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "decoder": run.decoder,
        "target": setup.target.name,
        "draft": setup.draft.name if setup.draft is not None else None,
        "rule": str(setup.rule),
        "draft_length": setup.draft_length,
        "dtype": setup.dtype,
        "options": {name: str(value) for name, value in setup.options.items()},
        "profile": str(run.profile),
        "seed": run.seed,
        "without": sorted(run.without),
        "clauses": list(ordered(selected)),
        "claims": about.get("claims"),
        "offers": about.get("offers"),
    }


class Report:
    """Writes report.jsonl as verdicts arrive, and its renderings when the run ends; without a directory, nothing.

    `selected` are the clauses of which there will be one verdict each. Verdicts wait for the first that knows the
    decoder's claims, because the header states them.
    """

    def __init__(self, run: Run, directory: Path | None, selected: Iterable[str] = ()) -> None:
        self._run, self._directory, self.selected = run, directory, frozenset(selected)
        self._last = ROOT
        self._waiting: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.again: list[dict[str, Any]] = []

    def _write(self, line: dict[str, Any]) -> None:
        line = sealed(line, self._last)
        self._last = line["hash"]
        self.lines.append(line)
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / "report.jsonl").open(
                "w" if len(self.lines) == 1 else "a", encoding="utf-8"
            ) as file:
                file.write(canonical(line) + "\n")

    def add(self, result: dict[str, Any]) -> None:
        """Append one verdict; of a clause that was run again, the footer says so."""
        known = (*self._waiting, *self.lines[1:])
        if any(line["clause"] == result["clause"] for line in known):
            self.again.append({name: result[name] for name in AGAIN})
            return
        self._waiting.append(result)
        if self.lines or result.get("claims") is not None:
            self._flush()

    def _flush(self) -> None:
        if self._waiting and not self.lines:
            self._write(header(self._run, self.selected, self._waiting[-1]))
        for result in self._waiting:
            self._write({"type": "verdict"} | {name: value for name, value in result.items() if name not in ABOUT})
        self._waiting.clear()

    def close(self, status: int) -> str:
        """Append the footer and write the renderings; nothing if no verdict was reached. The hash of all of it."""
        self._flush()
        if not self.lines:
            return ""
        self._write(footer(self.lines[1:], status, self.again))
        if self._directory is not None:
            render(self._directory, self.lines)
        return self._last


def footer(verdicts: Iterable[dict[str, Any]], status: int, again: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """What the verdicts come to; `again` are those of clauses that were run once more, which count, too."""
    verdicts, again = list(verdicts), list(again)
    counts = dict(sorted(Counter(line["verdict"] for line in verdicts).items()))
    budget = {"alpha": ALPHA, "spent": total(line["spent"] for line in (*verdicts, *again))}
    return {
        "type": "footer",
        "verdicts": len(verdicts),
        "counts": counts,
        "again": again,
        "status": status,
        "budget": budget,
    }


def render(directory: Path, lines: list[dict[str, Any]]) -> None:
    """Write the page and the JUnit file that the lines of a finished report stand for, as they are read again."""
    known = [json.loads(canonical(line)) for line in lines]
    for name, rendered in RENDERINGS.items():
        (directory / name).write_bytes(rendered(known).encode())


@dataclass(frozen=True, slots=True)
class Loaded:
    """A complete report whose chain is whole."""

    header: dict[str, Any]
    verdicts: tuple[dict[str, Any], ...]
    footer: dict[str, Any]


def _line(number: int, raw: bytes) -> dict[str, Any]:
    if len(raw) > LARGEST_LINE:
        raise BadReport(f"line {number}: is longer than {LARGEST_LINE} bytes")
    try:
        line = parse_json(raw, parse_constant=_refuse)
        canonical(line)  # what cannot be written, such as an infinity in disguise, was not
    except ValueError as error:
        raise BadReport(f"line {number}: is not JSON ({error})") from None
    if not isinstance(line, dict) or line.get("type") not in ("header", "verdict", "footer"):
        raise BadReport(f"line {number}: is not a line of a report")
    return line


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number here")


def load(directory: Path) -> Loaded:
    """Read a report of bounded size; BadReport names the line where it is truncated or altered."""
    path = directory / "report.jsonl"
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise BadReport(f"report.jsonl: is larger than {LARGEST_FILE} bytes")
        with path.open("rb") as file:
            raw = [file.readline(LARGEST_LINE + 2) for _ in range(MOST_LINES)]
            if file.readline(1):
                raise BadReport(f"report.jsonl: has more than {MOST_LINES} lines, or one that is too long")
    except OSError as error:
        raise BadReport(f"report.jsonl: cannot be read ({error.strerror or error})") from None
    lines = [_line(number, one) for number, one in enumerate((r for r in raw if r), start=1)]
    if not lines or lines[0]["type"] != "header":
        raise BadReport("line 1: is not a header")
    if lines[0].get("format") != FORMAT:
        raise BadReport(f"line 1: format {lines[0].get('format')!r} is not {FORMAT}")
    if lines[-1]["type"] != "footer":
        raise BadReport(f"line {len(lines)}: the report is truncated: it has no footer")
    before = ROOT
    for number, line in enumerate(lines, start=1):
        content = {name: value for name, value in line.items() if name != "hash"}
        if sealed(content, before)["hash"] != line.get("hash"):
            raise BadReport(f"line {number}: was altered, or a line before it: the hash does not match")
        before = line["hash"]
        if (line["type"] != "verdict") != (number in (1, len(lines))):
            raise BadReport(f"line {number}: a {line['type']} stands in the wrong place")
    verdicts, footer = tuple(lines[1:-1]), lines[-1]
    counts = Counter(str(line.get("verdict")) for line in verdicts)
    if footer.get("verdicts") != len(verdicts) or footer.get("counts") != dict(counts):
        raise BadReport(f"line {len(lines)}: the footer counts other verdicts than the report holds")
    return Loaded(lines[0], verdicts, footer)
