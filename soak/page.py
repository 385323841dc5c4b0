"""The report of a soak run: one self-contained page, rendered from the journal, also while the run goes on."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

import specqual.conformance
from specqual.conformance.junit import printable
from specqual.conformance.kinds.values import short
from specqual.conformance.verdicts import Decision, Status

from .charts import charts
from .glance import clock, glance, words
from .journal import Journal
from .series import lives, segments

NAME = "index.html"
SHOWN = 20  # violations
SHOWN_TEXT = 2_000  # characters of one bundle
HERE = (Path(__file__).parent, Path(specqual.conformance.__path__[0]))  # the style is that of the suite's page


def page(
    journal: Journal, checked: Mapping[str, Decision], status: Status, meaning: str, enough: float, running: bool
) -> str:
    """Render what a journal holds, with the verdicts that follow from it; `enough` is the log E that rejects a law."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    seen, about, on = glance(journal), journal.about, segments(journal)
    violations = journal.violations()
    title = " ".join(str(about[name]) for name in ("decoder", "target", "draft") if about.get(name))
    return printable(
        environment.get_template("soak.html.j2").render(
            title=title or "a run that has not begun",
            about={"seed": None} | about,
            status=int(status),
            meaning=meaning,
            running=running,
            seen=seen,
            words=words(seen),
            violations=[
                {
                    "scenario": scenario,
                    "epoch": epoch,
                    "oracle": one.oracle,
                    "detail": one.detail,
                    "bundle": short(json.dumps(one.bundle), SHOWN_TEXT),
                }
                for scenario, epoch, one in violations[:SHOWN]
            ],
            more=max(0, len(violations) - SHOWN),
            checked=checked,
            hazards=dict(sorted(seen.totals.items())),
            charts=charts(journal, lives(journal), on, enough),
            segments=list(starts(journal, running)),
        )
    )


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
