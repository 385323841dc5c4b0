"""What a journal's gauges tell over time: by process, and by the time that the run was on."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, zip_longest
from time import time as clock

from specqual.conformance.verdicts import Decision

from .gauges import AT_REST, PROCESS
from .journal import Journal
from .leak import growth
from .scenarios import SCENARIOS, deck

SILENT = 120.0  # seconds in which a run that goes on says something
Moment = tuple[float, Mapping[str, float]]
"""When, in seconds since the epoch of clocks, and what was read then, by name."""


@dataclass(frozen=True, slots=True)
class Life:
    """The gauges of one process in order; a worker that was started again has another life. At `met` it had served an
    epoch of every scenario that it ever came to."""

    worker: int
    moments: tuple[Moment, ...]
    met: float = 0.0  # a time as those of moments

    def of(self, *names: str) -> list[tuple[float, ...]]:
        """Time and values of the moments that have all of these."""
        return [(time, *(read[name] for name in names)) for time, read in self.moments if read.keys() >= set(names)]

    def settled(self) -> "Life":
        """The longest part of it in which no decoder was made and nothing was served for the first time: either takes
        memory, and that is no leak."""
        behind = [moment for moment in self.moments if moment[0] >= self.met]
        parts = [tuple(part) for _, part in groupby(behind, key=lambda moment: moment[1].get("decoders"))]
        return replace(self, moments=max(parts, key=len, default=()))


@dataclass(frozen=True, slots=True)
class Segments:
    """When the command ran: (start, end) of each start of it, in order; the end of one that was killed, or that still
    runs, is the last that was heard of it."""

    spans: tuple[tuple[float, float], ...]

    def __call__(self, time: float) -> float:
        """How long the run had been on at a time, in seconds; nothing passes between two segments."""
        place = max(bisect_right(self.spans, (time, float("inf"))) - 1, 0)
        before = sum(end - start for start, end in self.spans[:place])
        start, end = self.spans[place]
        return before + min(max(time, start), end) - start

    @property
    def seconds(self) -> float:
        return sum(end - start for start, end in self.spans)


def segments(journal: Journal) -> Segments:
    """The segments of a run; a run that has not begun has one of no length."""
    ask = journal.connection.execute
    rows = ask("SELECT segment, started, ended FROM segments ORDER BY segment").fetchall()
    following = [started for _, started, _ in rows[1:]]
    spans = []
    for (segment, started, ended), limit in zip_longest(rows, following, fillvalue=float("inf")):
        if ended is None:
            (heard,) = ask("SELECT max(time) FROM gauges WHERE time >= ? AND time < ?", (started, limit)).fetchone()
            (done,) = ask("SELECT max(started + seconds) FROM epochs WHERE segment = ?", (segment,)).fetchone()
            ended = min(max(heard or started, done or started), limit)
        spans.append((started, max(started, ended)))  # a clock that was set back has no time go backwards
    return Segments(tuple(spans) or ((0.0, 0.0),))


def running(journal: Journal) -> bool:
    """Whether somebody seems to be writing: the last segment has no end, and was heard of a while ago at most."""
    row = journal.connection.execute("SELECT ended FROM segments ORDER BY segment DESC LIMIT 1").fetchone()
    return row is not None and row[0] is None and clock() - segments(journal).spans[-1][1] < SILENT


def lives(journal: Journal) -> list[Life]:
    """All gauges of workers, by process, in the order in which the processes began."""
    starts = [start for start, _ in segments(journal).spans]
    found: list[Life] = []
    for worker, moments in _by_worker(journal.connection.execute(READ)):
        begin = 0
        for place, (one, other) in enumerate(pairwise(moments), start=1):
            restarted = other[1].get(PROCESS) != one[1].get(PROCESS)
            if restarted or bisect_right(starts, one[0]) < bisect_right(starts, other[0]):
                found.append(_life(journal, worker, moments, begin, place))
                begin = place
        found.append(_life(journal, worker, moments, begin, len(moments)))
    return sorted(found, key=lambda life: life.moments[0][0])


def _life(journal: Journal, worker: int, moments: Sequence[Moment], begin: int, end: int) -> Life:
    """A life with the end of the last of its scenarios' first epochs, all of them behind the life before."""
    since, last = moments[begin - 1][0] if begin else 0.0, moments[end - 1][0]
    (met,) = journal.connection.execute(MET, (worker, since, last)).fetchone()
    return Life(worker, tuple(moments[begin:end]), met or 0.0)


MET = """SELECT max(first) FROM (SELECT min(started + seconds) AS first FROM epochs
WHERE worker = ? AND started BETWEEN ? AND ? GROUP BY scenario)"""
# in the order in which they were read, which is that of rows: somebody may set the clock of times
READ = "SELECT worker, time, name, value FROM gauges WHERE worker >= 0 ORDER BY worker, rowid"


def _by_worker(rows: Iterable[tuple[int, float, str, float]]) -> Iterator[tuple[int, list[Moment]]]:
    found: dict[int, list[tuple[float, dict[str, float]]]] = {}
    for worker, time, name, value in rows:
        own = found.setdefault(worker, [])
        if not own or own[-1][0] != time:
            own.append((time, {}))
        own[-1][1][name] = value
    yield from found.items()


def a_deck(journal: Journal) -> float:
    """Requests of one deck of epochs, by how many an epoch had so far."""
    scenarios = [SCENARIOS[name] for name in journal.about.get("scenarios", ()) if name in SCENARIOS]
    (epochs,) = journal.connection.execute("SELECT count(*) FROM epochs").fetchone()
    return len(deck(0, 0, scenarios)) * journal.counts().get("requests", 0) / max(epochs, 1)


def memory(all_lives: Sequence[Life], least: float = 0.0) -> Decision:
    """The verdict on the memory of all processes at rest, behind `least` requests of each."""
    read = [life.settled().of("requests", AT_REST) for life in all_lives]
    return growth([[(requests, held) for _, requests, held in moments] for moments in read], least)
