"""The report as one self-contained page: no script, no network, every text escaped."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from .clauses import CHAPTERS, CLAUSES
from .junit import printable
from .kinds.values import short
from .verdicts import Verdict

SHOWN_CASES = 12


def bars(values: list[float | None], labels: list[str], title: str) -> dict[str, Any]:
    """A small bar chart as plain numbers for the template; heights are fractions of the largest value."""
    known = [value for value in values if value is not None]
    top = max(known, default=0) or 1
    return {
        "title": title,
        "bars": [
            {
                "label": label,
                "value": "" if value is None else f"{value:.3g}",
                "height": 0 if value is None else value / top,
            }
            for label, value in zip(labels, values, strict=True)
        ],
    }


def regrets(verdicts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Histogram of regrets, by power of ten."""
    edges = [1e-12, 1e-9, 1e-6, 1e-3, 1e-2, 1e-1, 1.0]
    labels = ["0", *(f"≤ {edge:g}" for edge in edges[1:]), "> 1"]
    counts = [0.0] * len(labels)
    for line in verdicts:
        if line["evidence"]["kind"] != "greedy":
            continue
        for case in line["evidence"]["cases"]:
            for best, own in zip(case["best"], case["logprob"], strict=True):
                regret = float("inf") if own is None else best - own
                counts[sum(regret > edge for edge in edges)] += 1
    return bars(counts, labels, "Regret of every greedy token, nats") if sum(counts) else None


def acceptance(verdicts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Acceptance of each draft position among the rounds that drafted it."""
    for line in verdicts:
        places = line["evidence"]["notes"].get("acceptance per position")
        if line["clause"] == "LIVE-1" and places:
            labels = [str(i + 1) for i in range(len(places))]
            return bars(places, labels, "Acceptance per draft position")
    return None


def page(lines: list[dict[str, Any]]) -> str:
    """Render the lines of a report."""
    verdicts = [line for line in lines if line["type"] == "verdict"]
    rows = [
        {
            "about": CLAUSES[line["clause"]],
            "line": line,
            "verdict": line["verdict"] + (f" (≤ {line['delta']:.3g})" if line["delta"] is not None else ""),
            "class": Verdict(line["verdict"]).name.lower(),
            "cases": [
                {name: short(value, 300) for name, value in case.items()}
                for case in line["evidence"]["cases"][:SHOWN_CASES]
            ],
            "more": max(0, len(line["evidence"]["cases"]) - SHOWN_CASES),
        }
        for line in sorted(verdicts, key=lambda line: list(CLAUSES).index(line["clause"]))
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    charts = [chart for chart in (acceptance(verdicts), regrets(verdicts)) if chart is not None]
    template = environment.get_template("page.html.j2")
    return printable(template.render(header=lines[0], footer=lines[-1], rows=rows, charts=charts, chapters=CHAPTERS))
