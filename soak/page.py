"""The report of a soak run: one self-contained page, rendered from the journal, also while the run goes on."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log
from pathlib import Path
from time import monotonic
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

import specqual.conformance
from specqual.conformance.junit import printable
from specqual.conformance.kinds.values import short
from specqual.conformance.verdicts import MEANING, Status

from .charts import charts
from .glance import EVIDENCE, checkpoint, clock, glance, headline, words
from .journal import KEPT, Journal
from .night import LAWS, Night, judged
from .scenarios import SCENARIOS
from .series import lives, segments

NAME = "index.html"
PAGES = 60.0  # seconds between two renderings
SHOWN = 20  # violations
SHOWN_TEXT = 2_000  # characters of one bundle
HERE = (Path(__file__).parent, Path(specqual.conformance.__path__[0]))  # the style is that of the suite's page


def page(journal: Journal, night: Night, running: bool) -> str:
    """Render what a journal holds, with the verdicts that follow from it."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    seen, on, violations = glance(journal), segments(journal), journal.violations(most=SHOWN)
    about = {"seed": None} | journal.about
    about |= {name: checkpoint(about[name]) for name in ("target", "draft") if about.get(name)}
    return printable(
        environment.get_template("soak.html.j2").render(
            title=headline(about),
            about=about,
            status=int(night.status),
            meaning=meant(night.status),
            running=running,
            seen=seen,
            words=words(seen),
            violations=[
                {
                    "scenario": one.scenario,
                    "epoch": one.epoch,
                    "oracle": one.violation.oracle,
                    "detail": one.violation.detail,
                    "bundle": short(json.dumps(one.violation.bundle), SHOWN_TEXT),
                }
                for one in violations
            ],
            more=max(0, seen.kept - SHOWN),
            counted=seen.violations - seen.kept,
            most=KEPT,
            checked=night.decisions,
            hazards=list(hazards(journal)),
            totals=dict(sorted(night.counts.items())),
            charts=charts(journal, lives(journal), on, -log(LAWS)),
            segments=list(starts(journal, running)),
        )
    )


def meant(status: Status) -> str:
    """What an exit status says of a soak run."""
    own = {
        Status.CLEAN: "all that was looked at holds",
        Status.OPEN: "something was not put to the test, or not for long enough",
        Status.ERROR: "something failed on the way, and what it would have shown is undecided",
    }
    return own.get(status, MEANING[status])


def hazards(journal: Journal) -> Iterator[dict[str, Any]]:
    """Each scenario of the run with its epochs, and how often each of its hazards occurred in them."""
    epochs = dict(journal.connection.execute("SELECT scenario, count(*) FROM epochs GROUP BY scenario"))
    for name in dict.fromkeys([*journal.about.get("scenarios", ()), *sorted(epochs)]):
        counts = journal.counts(name)
        wanted = SCENARIOS[name].hazards if name in SCENARIOS else tuple(counts)
        yield {"name": name, "epochs": epochs.get(name, 0), "counts": {one: counts.get(one, 0) for one in wanted}}


def starts(journal: Journal, running: bool) -> list[dict[str, Any]]:
    """Each start of the command: when, for how long, how many epochs came of it, and how it ended."""
    ended = dict(journal.connection.execute("SELECT segment, how FROM segments"))
    epochs = dict(journal.connection.execute("SELECT segment, count(*) FROM epochs GROUP BY segment"))
    spans = dict(zip(sorted(ended), segments(journal).spans, strict=False))
    return [
        {
            "number": number,
            "began": f"{datetime.fromtimestamp(spans[number][0], UTC):%Y-%m-%d %H:%M:%S} UTC",
            "length": clock(spans[number][1] - spans[number][0]),
            "epochs": epochs.get(number, 0),
            "how": ended[number] or ("it runs" if running and number == max(ended) else "killed"),
        }
        for number in sorted(ended)
    ]


def write(text: str, folder: Path) -> Path:
    """Put the page into a folder at one stroke, so that whoever reads it there reads a whole one."""
    file, fresh = folder / NAME, folder / f".{NAME}"
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)
    return file


@dataclass
class Press:
    """Keeps the page beside a journal up to date, and takes at most a twentieth of the time for it."""

    journal: Journal
    folder: Path
    now: Callable[[], float] = monotonic
    trouble: str | None = None  # why the page could not be written

    def __post_init__(self) -> None:
        self._next = self.now() + PAGES

    def tick(self) -> None:
        """Render the page anew, if it is time to."""
        began = self.now()
        if began >= self._next:
            with suppress(Exception):  # the run goes on, and has another page at its end, where nothing is suppressed
                self.print(running=True)
            self._next = self.now() + max(PAGES, 20 * (self.now() - began))

    def print(self, running: bool) -> Night:
        """Render the page, and leave what the evidence came to among the gauges; the verdict stands where a disk that
        is full takes neither, which `trouble` then says."""
        night, self.trouble = judged(self.journal), None
        for step in (
            lambda: self.journal.gauge(-1, {EVIDENCE: night.log_e / log(10)}),
            lambda: write(page(self.journal, night, running), self.folder),
        ):
            try:
                step()
            except (OSError, sqlite3.Error) as error:
                self.trouble = str(error)
        return night
