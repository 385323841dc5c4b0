"""The journal: one SQLite file that holds all a run has established, and that a resumed run goes on from.

An epoch is one transaction: its verdict row, its evidence, its histograms and its violations are there together or
not at all. Written through a write-ahead log with synchronous=FULL, so a power failure loses the epochs in flight and
nothing else; read by anybody, also while a run writes. docs/soak.md explains the columns.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import time
from typing import IO, Any

from .lock import locked
from .records import Epoch, Finding, Increment, Served, Violation
from .tables import TABLES, VERSION

NAME = "soak.sqlite"  # in the folder that --report names
KEPT = 20  # violations of one oracle in one scenario that a run keeps
FOUND = "violations"  # histogram of all of them by oracle


class BadJournal(ValueError):
    """A file that is no journal, or the journal of another run; says which."""


class Journal:
    """One open journal. `Journal.open` is for the one process that writes, `Journal.read` for everybody else."""

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: IO[bytes] | None = None) -> None:
        self.connection, self.path, self._lock = connection, path, lock

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """Open for writing; a file that is not there, or has nothing in it yet, is made. BadJournal for one that is
        something else, or that another process writes."""
        try:
            lock = locked(path)
        except OSError as error:
            raise BadJournal(f"{path}: another process writes it") from error
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables and not connection.execute("PRAGMA user_version").fetchone()[0]:
                connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        except sqlite3.DatabaseError as error:
            raise BadJournal(f"{path}: {error}") from error
        return cls(connection, path, lock)._checked()

    @classmethod
    def read(cls, path: Path) -> "Journal":
        """Open without being able to change anything, also while a run writes."""
        if not path.is_file():
            raise BadJournal(f"{path}: there is no journal")
        return cls(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30), path)._checked()

    def _checked(self) -> "Journal":
        try:
            version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise BadJournal(f"{self.path}: {error}") from error
        if version != VERSION:
            raise BadJournal(f"{self.path}: is no journal of version {VERSION}")
        return self

    def close(self) -> None:
        self.connection.close()
        if self._lock is not None:
            self._lock.close()

    # writing

    def begin(self, about: Mapping[str, Any]) -> int:
        """Begin a segment of the run that `about` describes, and give its number; BadJournal as in `agree`."""
        with self._transaction():
            if not self.agree(about):
                written = [(name, json.dumps(value)) for name, value in about.items()]
                self.connection.executemany("INSERT INTO run VALUES (?, ?)", written)
            cursor = self.connection.execute("INSERT INTO segments (started) VALUES (?)", (time(),))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def agree(self, about: Mapping[str, Any]) -> bool:
        """Whether this is the journal of the run that `about` describes: False where it is of none so far, and
        BadJournal, which names what differs, where it is of another."""
        known = self.about
        for name, value in about.items() if known else ():
            if known.get(name) != value:
                raise BadJournal(f"{name}: this journal's run has {known.get(name)!r}, not {value!r}")
        return bool(known)

    def end(self, segment: int, how: str) -> None:
        """End a segment; one that was killed has no end."""
        self.connection.execute("UPDATE segments SET ended = ?, how = ? WHERE segment = ?", (time(), how, segment))

    def add(self, segment: int, epoch: Epoch, served: Served) -> tuple[Finding, ...]:
        """Record an epoch with everything in it, in one transaction. Of its violations all are counted; those that are
        kept, of which a run has `KEPT` of each oracle in each scenario, are given back."""
        key = epoch.scenario, epoch.number
        timing = segment, served.worker, served.started, served.seconds, served.oracle_seconds
        told = epoch.verdict, epoch.digest, _json(epoch.counts)
        found = Counter(one.oracle for one in epoch.violations)
        histograms = {**epoch.histograms, **({FOUND: found} if found else {})}
        with self._transaction():
            kept = tuple(self._kept(epoch))
            run = self.connection.executemany
            run("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [(*key, *timing, *told)])
            run(
                "INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)",
                [(*key, one.test, one.log_e, one.samples, _json(one.counts)) for one in epoch.evidence],
            )
            run(
                "INSERT OR IGNORE INTO laws VALUES (?, ?, ?, ?)",
                [(e.test, name, _json(law), e.slack) for e in epoch.evidence for name, law in e.laws.items()],
            )
            run(
                "INSERT INTO histograms VALUES (?, ?, ?, ?)",
                [(*key, name, _json(bins)) for name, bins in histograms.items()],
            )
            run(
                "INSERT INTO violations VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (*key, one.place, one.time, one.violation.oracle, one.violation.detail, _json(one.violation.bundle))
                    for one in kept
                ],
            )
        return kept

    def _kept(self, epoch: Epoch) -> Iterator[Finding]:
        """Of an epoch's violations with a bundle those that there is room for."""
        query = "SELECT oracle, count(*) FROM violations WHERE scenario = ? AND place >= 0 GROUP BY oracle"
        known = Counter(dict(self.connection.execute(query, (epoch.scenario,))))
        for place, one in enumerate(epoch.violations):
            if one.bundle is not None and known[one.oracle] < KEPT:
                known[one.oracle] += 1
                yield Finding(time(), epoch.scenario, epoch.number, place, one)

    def note(self, scenario: str, number: int, one: Violation) -> None:
        """Record what happened around an epoch, whatever its own row says or will say."""
        place = "SELECT min(0, coalesce(min(place), 0)) - 1 FROM violations WHERE scenario = ?1 AND epoch = ?2"
        told = scenario, number, time(), one.oracle, one.detail, _json(one.bundle)
        with self._transaction():
            self.connection.execute(f"INSERT INTO violations VALUES (?1, ?2, ({place}), ?3, ?4, ?5, ?6)", told)

    def gauge(self, worker: int, values: Mapping[str, float], now: float | None = None) -> None:
        """Record what a worker measured at one moment; the parent's worker is -1."""
        moment = time() if now is None else now
        rows = [(moment, worker, name, float(value)) for name, value in values.items()]
        with self._transaction():
            self.connection.executemany("INSERT INTO gauges VALUES (?, ?, ?, ?)", rows)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self.connection)

    # reading

    @property
    def about(self) -> dict[str, Any]:
        """What the run is: decoder, checkpoints, options, seed, scenarios; empty before its first segment."""
        return {name: json.loads(value) for name, value in self.connection.execute("SELECT name, value FROM run")}

    def done(self) -> set[tuple[str, int]]:
        """The epochs that are recorded."""
        return set(self.connection.execute("SELECT scenario, epoch FROM epochs"))

    def rows(self) -> Iterator[tuple[str, int, str, str, str]]:
        """Verdict rows in order: scenario, epoch, verdict, digest, counts; the same with and without interruption."""
        columns = "scenario, epoch, verdict, digest, counts"
        yield from self.connection.execute(f"SELECT {columns} FROM epochs ORDER BY scenario, epoch")

    def counts(self, scenario: str | None = None) -> dict[str, int]:
        """Hazards and totals of all epochs together, or of one scenario's."""
        query, about = "SELECT counts FROM epochs WHERE scenario = ?1 OR ?1 IS NULL", (scenario,)
        return added(json.loads(row) for (row,) in self.connection.execute(query, about))

    def histogram(self, name: str) -> dict[str, int]:
        """A histogram of all epochs together."""
        query = "SELECT bins FROM histograms WHERE name = ?"
        return added(json.loads(row) for (row,) in self.connection.execute(query, (name,)))

    def increments(self) -> Iterator[tuple[str, int, Increment]]:
        """Evidence with its scenario and epoch, in the order in which it was recorded."""
        query = """SELECT e.scenario, e.epoch, test, log_e, samples, e.counts FROM evidence e JOIN epochs p
            ON p.scenario = e.scenario AND p.epoch = e.epoch ORDER BY p.started + p.seconds, e.scenario, e.epoch"""
        for scenario, epoch, test, log_e, samples, counts in self.connection.execute(query):
            cells = {context: tuple(row) for context, row in json.loads(counts).items()}
            yield scenario, epoch, Increment(test, log_e, samples, cells)

    def laws(self) -> dict[tuple[str, str], tuple[tuple[float, ...], float]]:
        """The law of each context of each test, and how far it is known."""
        rows = self.connection.execute("SELECT test, context, law, slack FROM laws ORDER BY test, context")
        return {(test, context): (tuple(json.loads(law)), slack) for test, context, law, slack in rows}

    def noted(self, oracle: str) -> list[tuple[str, int, str]]:
        """Scenario, epoch and sentence of everything that one oracle saw, in the order in which it was seen."""
        query = "SELECT scenario, epoch, detail FROM violations WHERE oracle = ? ORDER BY time, scenario, epoch, place"
        return list(self.connection.execute(query, (oracle,)))

    def violations(self, behind: Finding | None = None, most: int = -1) -> list[Finding]:
        """What went wrong and was kept, in the order in which it was recorded, from behind one on."""
        last = (0.0, "", 0, 0) if behind is None else (behind.time, behind.scenario, behind.epoch, behind.place)
        where = "WHERE (time, scenario, epoch, place) > (?, ?, ?, ?) ORDER BY time, scenario, epoch, place LIMIT ?"
        return self._findings(where, (*last, most))

    def latest(self, most: int) -> list[Finding]:
        """The last of what went wrong and was kept, in the order in which it was recorded."""
        where = "ORDER BY time DESC, scenario DESC, epoch DESC, place DESC LIMIT ?"
        return self._findings(where, (most,))[::-1]

    def _findings(self, where: str, given: tuple[Any, ...]) -> list[Finding]:
        columns = "time, scenario, epoch, place, oracle, detail, bundle"
        rows = self.connection.execute(f"SELECT {columns} FROM violations {where}", given)
        return [Finding(*key, Violation(oracle, detail, json.loads(bundle))) for *key, oracle, detail, bundle in rows]

    def found(self) -> dict[str, int]:
        """How often each oracle found something, kept or not."""
        noted = "SELECT oracle, count(*) FROM violations WHERE place < 0 GROUP BY oracle"
        return added([self.histogram(FOUND), dict(self.connection.execute(noted))])

    def kept(self) -> int:
        """How many violations are kept."""
        (count,) = self.connection.execute("SELECT count(*) FROM violations").fetchone()
        return int(count)


class _Transaction:
    """All of the body or nothing of it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:  # where a disk is full SQLite has rolled back by itself
                self.connection.execute("ROLLBACK")


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts of several epochs together: sums, and for `most …` the largest."""
    found: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            known = found.get(name, 0)
            found[name] = max(known, count) if name.startswith("most ") else known + count
    return found


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
