"""The live view: a dashboard on a terminal, plain lines anywhere else, both from the journal alone."""

from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .glance import Glance, clock, glance, headline, words
from .journal import Journal
from .records import Finding

HEARTBEAT = 60.0  # seconds between two lines
LOOKED = 2.0  # seconds between two looks for violations
REDRAWN = 5.0  # seconds between two pictures: of a night's journal one takes a fifth of a second
SHOWN = 5  # violations
IN_A_LINE = ("epochs", "requests", "tokens/s", "accepted per round", "memory", "worst regret", "log10 E", "violations")


class View(Protocol):
    """What a run shows while it runs: entered once, and told after everything that happens that time has passed."""

    def __enter__(self) -> "View": ...
    def __exit__(self, *error: Any) -> None: ...

    def tick(self) -> None:
        """Show what is new, if it is time to."""
        ...


def view(journal: Journal, console: Console, now: Callable[[], float] = monotonic) -> View:
    """The dashboard where the console is a terminal, else plain lines."""
    return Dashboard(journal, console, now) if console.is_terminal else Plain(journal, console, now)


class Plain:
    """A heartbeat each minute, one line, and one for each violation as soon as it is seen."""

    def __init__(self, journal: Journal, console: Console, now: Callable[[], float] = monotonic) -> None:
        self._journal, self._console, self._now = journal, console, now
        self._told, self._looked = 0.0, 0.0
        self._seen: Finding | None = None  # the last one that needs no more telling

    def __enter__(self) -> "Plain":
        self._told, self._seen = self._now(), next(iter(self._journal.latest(1)), None)
        return self

    def __exit__(self, *error: Any) -> None:
        self._news()
        self._say(heartbeat(glance(self._journal)))

    def tick(self) -> None:
        now = self._now()
        if now - self._looked >= LOOKED:
            self._looked = now
            self._news()
        if now - self._told >= HEARTBEAT:
            self._told = now
            self._say(heartbeat(glance(self._journal)))

    def _news(self) -> None:
        for one in self._journal.violations(self._seen):
            self._say(str(one))
            self._seen = one

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def heartbeat(seen: Glance) -> str:
    """0:12:00  epochs 130  requests 10,234  …"""
    told = words(seen)
    return "  ".join([clock(seen.seconds), *(f"{name} {told[name]}" for name in IN_A_LINE if name in told)])


class Dashboard:
    """A table of everything, drawn anew in place; what stood there last stays when the run ends."""

    def __init__(self, journal: Journal, console: Console, now: Callable[[], float] = monotonic) -> None:
        self._journal, self._now, self._drawn = journal, now, -REDRAWN
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> "Dashboard":
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._draw()
        self._live.stop()

    def tick(self) -> None:
        if self._now() - self._drawn >= REDRAWN:
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._now()
        self._live.update(picture(self._journal), refresh=True)


def picture(journal: Journal) -> Panel:
    """What the dashboard shows: the numbers in two columns, scenarios, hazards, and the latest violations."""
    seen = glance(journal)
    numbers = Table.grid(padding=(0, 2))
    told = list(words(seen).items())
    half = -(-len(told) // 2)
    for one, other in zip(told[:half], [*told[half:], ("", "")], strict=False):
        bad = other[0] == "violations" and seen.violations > 0
        numbers.add_row(Text(one[0], "dim"), one[1], Text(other[0], "dim"), Text(other[1], "bold red" if bad else ""))
    whole = Table.grid()
    whole.add_row(numbers)
    epochs = "SELECT scenario, count(*) FROM epochs GROUP BY scenario ORDER BY scenario"
    scenarios = [f"{name} {count}" for name, count in journal.connection.execute(epochs)]
    for name, texts in (
        ("epochs by scenario", scenarios),
        ("verdicts", [f"{v} {n}" for v, n in seen.verdicts.items()]),
    ):
        if texts:
            whole.add_row(Text.assemble(("\n" + name + "  ", "dim"), " · ".join(texts)))
    for one in journal.latest(SHOWN):
        whole.add_row(Text(str(one), "bold red"))
    return Panel(whole, title=Text(f"specqual soak: {headline(journal.about)}"), title_align="left")
