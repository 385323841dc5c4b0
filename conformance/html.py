"""The report as one self-contained page: no script, no network, every text escaped."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from specqual.contract import Claims

from .charts import charts
from .clauses import CHAPTERS, CLAUSES, PLACES
from .junit import printable
from .kinds.values import short
from .sight import visible
from .symptoms import looks_like
from .verdicts import MEANING, Status, Verdict

SHOWN_CASES = 12
SHOWN_TEXT = 300  # characters of one value
GROUPS = {
    "holds": (Verdict.EXACT, Verdict.HOLDS, Verdict.TIE_EXPLAINED),
    "fails": (Verdict.VIOLATED, Verdict.ERROR),
    "open": (Verdict.INCONCLUSIVE, Verdict.WAIVED),
    "unseen": (Verdict.SKIPPED,),
}


def row(line: dict[str, Any]) -> dict[str, Any]:
    """One verdict, as the template shows it."""
    verdict, cases = Verdict(line["verdict"]), line["evidence"]["cases"]
    return {
        "about": CLAUSES[line["clause"]],
        "line": line,
        "verdict": line["verdict"] + (f" (≤ {line['delta']:.3g})" if line["delta"] is not None else ""),
        "class": verdict.name.lower(),
        "group": next(name for name, verdicts in GROUPS.items() if verdict in verdicts),
        "visible": visible(line["evidence"]),
        "proof": proof(line["proof"]),
        "notes": {name: short(value, SHOWN_TEXT) for name, value in line["evidence"].get("notes", {}).items()},
        "cases": [{name: short(value, SHOWN_TEXT) for name, value in case.items()} for case in cases[:SHOWN_CASES]],
        "more": max(0, len(cases) - SHOWN_CASES),
    }


def proof(text: str) -> list[tuple[str, str]]:
    """A proof as pairs of label and text; its first line only repeats the verdict."""
    pairs = (line.partition(" ") for line in text.splitlines()[1:])
    return [(label, said.strip()) for label, _, said in pairs]


def in_order(claims: dict[str, Any]) -> dict[str, Any]:
    """Claims as the contract lists them, so that engine, rule and method come first; others behind."""
    places = [field.name for field in fields(Claims)]
    return dict(sorted(claims.items(), key=lambda pair: places.index(pair[0]) if pair[0] in places else len(places)))


def unseen(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Why clauses were not decided -> which ones."""
    found: dict[str, list[str]] = {}
    for one in rows:
        if one["verdict"] in (Verdict.SKIPPED, Verdict.INCONCLUSIVE):
            found.setdefault(one["line"]["detail"], []).append(one["about"].id)
    return found


def page(lines: list[dict[str, Any]]) -> str:
    """Render the lines of a report."""
    verdicts = [line for line in lines if line["type"] == "verdict"]
    rows = [row(line) for line in sorted(verdicts, key=lambda line: PLACES[line["clause"]])]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    shown = {chapter: title for chapter, title in CHAPTERS.items() if any(r["about"].chapter == chapter for r in rows)}
    return printable(
        template.render(
            header=lines[0],
            footer=lines[-1],
            meaning=MEANING[Status(lines[-1]["status"])],
            rows=rows,
            claims=in_order(lines[0]["claims"] or {}),
            alike=looks_like(verdicts),
            failed=[one for one in rows if one["group"] == "fails"],
            groups={name: sum(one["group"] == name for one in rows) for name in GROUPS},
            chapters=shown,
            charts=charts(verdicts),
            unseen=unseen(rows),
        )
    )
