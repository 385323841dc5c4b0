"""The table at the end of a run in the terminal."""

from io import StringIO
from math import fsum
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .baseline import Changes, compare
from .clauses import CLAUSES, PLACES, ordered
from .statistics.budget import ALPHA, overdrawn, total
from .symptoms import looks_like
from .verdicts import MEANING, Verdict
from .waivers import warnings

if TYPE_CHECKING:
    from .session import Session

COLOURS = {
    Verdict.EXACT: "green",
    Verdict.HOLDS: "green",
    Verdict.TIE_EXPLAINED: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.SKIPPED: "dim",
    Verdict.WAIVED: "yellow",
    Verdict.ERROR: "bold magenta",
}


def summarise(reporter: pytest.TerminalReporter, session: "Session") -> None:
    """Print one row a clause, and what the exit status means."""
    status = session.status()
    reporter.section("conformance", sep="=")
    found = session.asked.baseline
    changes = None if found is None or not session.results else compare(found, session.report.lines[0], session.results)
    shown = [
        line
        for line in session.results
        if changes is None or line["clause"] in changes.changed or line["clause"] in changes.new
    ]
    if shown:
        table = Table(box=None, pad_edge=False)
        for name in ("clause", "level", "verdict", "seconds", "what was seen"):
            table.add_column(name, overflow="fold", no_wrap=name != "what was seen", justify="left")
        for result in sorted(shown, key=lambda r: PLACES[r["clause"]]):
            verdict = Verdict(result["verdict"])
            bound = f"(≤ {result['delta']:.3g})" if result["delta"] is not None else ""
            detail = result["detail"] if not result["waiver"] else f"{result['waiver']['reason']}: {result['detail']}"
            table.add_row(
                result["clause"],
                str(CLAUSES[result["clause"]].level),
                Text(f"{verdict}{bound}", style=COLOURS[verdict]),
                f"{result['seconds']:.1f}",
                Text(detail),
            )
        out = StringIO()
        colour = reporter.hasmarkup
        Console(
            file=out, width=max(100, get_terminal_size().columns), force_terminal=colour, no_color=not colour
        ).print(table)
        reporter.write(out.getvalue())
    if not session.results:
        reporter.write_line("no clause was selected")
    elif session.lost:
        reporter.write_line(f"selected, and never reached: {', '.join(ordered(session.lost))}", yellow=True)
    if changes is not None:
        for line in against(changes):
            reporter.write_line(line)
    claims = next((r["claims"] for r in session.results if r.get("claims")), None)
    if claims is not None:
        keys = ("engine", "version", "rule", "method", "dtype", "threads")
        reporter.write_line("claims: " + ", ".join(f"{key} {claims[key]}" for key in keys))
    spent = total(result["spent"] for result in session.results)
    for problem in overdrawn(spent):
        reporter.write_line(f"warning: {problem}; a clause was run again where that was not known", yellow=True)
    if session.report.again:
        names = ordered(result["clause"] for result in session.report.again)
        reporter.write_line(f"run more than once, and every verdict counts: {', '.join(names)}")
    reporter.write_line(
        f"false alarms of the whole run: at most {ALPHA:g}, of which {fsum(spent.values()):.3g} were spent"
        + (f" on {', '.join(dict.fromkeys(name.partition(': ')[0] for name in spent))}" if spent else "")
    )
    for warning in warnings(session.waivers, session.results):
        reporter.write_line(f"warning: {warning}", yellow=True)
    alike = looks_like(session.results)
    if alike is not None:
        reporter.write_line(alike)
    if session.asked.report is not None and session.results:
        reporter.write_line(f"report: {session.asked.report}, sealed {session.seal}")
    reporter.write_line(f"exit status {int(status)}: {MEANING[status]}")
    if session.foreign:
        reporter.write_line("another test of this run failed, which pytest reports as 1")


def against(changes: Changes) -> list[str]:
    """A comparison with a baseline in words."""
    said = []
    if changes.unlike:
        said.append(f"the baseline is a run of something else, and so may the changes be: {'; '.join(changes.unlike)}")
    said += [f"{len(changes.changed)} of {changes.same + len(changes.changed)} clauses changed since the baseline"]
    said += [f"{name} was {verdict}" for name, verdict in changes.changed.items()]
    for what, names in (
        ("new", changes.new),
        ("violated as before, which counts all the same", changes.still),
        ("in the baseline only", changes.absent),
        ("not as in the baseline's header", changes.header),
    ):
        said += [f"{what}: {', '.join(names)}"] if names else []
    return said
