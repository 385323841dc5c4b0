"""Small journals as runs write them, for tests of what is read from them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, time

from specqual.soak.about import About
from specqual.soak.gauges import AT_REST
from specqual.soak.journal import NAME, Journal
from specqual.soak.records import Epoch, Increment, Served, Violation
from specqual.soak.worker import World

HOSTILE = "<script>alert('&')</script>"
START = 1_700_000_000.0
ABOUT = {
    "decoder": "optimised",
    "target": "/checkpoints/nano/hybrid",
    "draft": "/checkpoints/nano/hybrid-dflash2",
    "seed": 7,
    "options": {},
    "scenarios": ["mixed", "gaps"],
}
COUNTS = {"requests": 120, "cancellations": 14, "preemptions": 6, "tokens": 3000, "rejections": 40, "most in a row": 9}
LAW = (0.5, 0.5)


def gauges(minutes: float, slope: float) -> dict[str, float]:
    """What a worker reads so many minutes behind its start."""
    served = 1200 * minutes
    found = {"requests": served, "tokens": 30 * served, "tokens/s": 600.0, "queue": 5.0, "worst regret": 2e-7}
    held = 400 + 50 * min(minutes, 1.0) + slope * served / 1e4
    found |= {"memory": held, AT_REST: held, "decoders": 2.0}
    found |= {"free pages nano": 900.0 - served % 70, "free slots nano": 12.0, "free pages table": 300.0}
    for place in (1, 2, 4, 8, 16):
        found |= {f"drafted @{place}": served / place, f"accepted @{place}": 2.5 * served / place}
    return found


def written(
    folder: Path,
    minutes: int = 20,
    violations: Sequence[Violation] = (),
    slope: float = 0.0,
) -> Path:
    """A run of two workers that was interrupted and resumed after half of its time; the file of its journal.

    `slope` is a leak in MB per 10,000 requests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal.open(folder / NAME)
    half = 60 * minutes / 2
    for part in range(2):
        segment, begin = journal.begin(ABOUT), START + part * (half + 5_000)  # a long break between the two
        journal.connection.execute("UPDATE segments SET started = ? WHERE segment = ?", (begin, segment))
        for worker in range(2):
            journal.gauge(worker, {"requests": 0.0, "decoders": 1.0, "memory": 300.0}, begin)
            for moment in range(1, int(half // 10) + 1):
                read = gauges(moment / 6, slope)
                journal.gauge(worker, read, begin + 10 * moment)
        journal.gauge(-1, {"log10 E": 0.2 * (part + 1)}, begin + half / 2)
        for number in range(part * minutes, (part + 1) * minutes):
            evidence = Increment("law table", 0.3 * (number % 3 - 1), 500, {"a": (250, 250)}, {"a": LAW})
            bins = {"regret": {"0": 400, "1e-6": 90 + number, "1e-3": 1}}
            bins |= {"drafted by length": {"1": 40, "2": 30, "2048": 10}, "accepted by length": {"1": 60, "2": 40}}
            found = Epoch("mixed", number, "EXACT", f"{number:064x}", COUNTS, (evidence,), bins)
            if number == 3 and violations:
                found = Epoch("mixed", 3, "VIOLATED", "f" * 64, COUNTS, (evidence,), bins, tuple(violations))
            journal.add(segment, found, Served(number % 2, begin + 30 * (number % minutes), 29.0, 8.0))
        if part:
            journal.end(segment, "the time was up")
            journal.connection.execute("UPDATE segments SET ended = ? WHERE segment = 2", (begin + half + 1,))
    journal.close()
    return folder / NAME


def in_process(about: About, journal: Journal, epochs: int) -> None:
    """Serve the next epochs of a run in this process, one after the other; as a worker does."""
    segment, done, world = journal.begin(about.json() | about.made_with()), journal.done(), World(about)
    tasks = (task for task in about.tasks() if task not in done)
    try:
        for _, task in zip(range(epochs), tasks, strict=False):
            started, began = time(), monotonic()
            played = world.play(task)
            journal.add(segment, played.epoch, Served(0, started, monotonic() - began, played.oracle_seconds))
    finally:
        with suppress(Exception):
            world.close()
        journal.end(segment, "done")
