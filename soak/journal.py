"""The journal: one SQLite file that holds all a run has established, and that a resumed run goes on from.

An epoch is one transaction: its verdict row, its evidence, its histograms and its violations are there together or
not at all. Written through a write-ahead log with synchronous=FULL, so a power failure loses the epochs in flight and
nothing else; read by anybody, also while a run writes. docs/soak.md explains the columns.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import time
from typing import IO, Any

from .lock import locked
from .records import Epoch, Increment, Served, Violation

VERSION = 1
NAME = "soak.sqlite"  # in the folder that --report names
PROCESS, CUT = "process", "cut off"  # what stands for an oracle where a worker died, and where an epoch had no end
TABLES = """
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE segments (segment INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, how TEXT);
CREATE TABLE epochs (
    scenario TEXT, epoch INTEGER, segment INTEGER NOT NULL, worker INTEGER NOT NULL, started REAL NOT NULL,
    seconds REAL NOT NULL, oracle_seconds REAL NOT NULL, verdict TEXT NOT NULL, digest TEXT NOT NULL,
    counts TEXT NOT NULL, PRIMARY KEY (scenario, epoch)) WITHOUT ROWID;
CREATE TABLE evidence (
    scenario TEXT, epoch INTEGER, test TEXT, log_e REAL NOT NULL, samples INTEGER NOT NULL, counts TEXT NOT NULL,
    PRIMARY KEY (scenario, epoch, test)) WITHOUT ROWID;
CREATE TABLE histograms (
    scenario TEXT, epoch INTEGER, name TEXT, bins TEXT NOT NULL, PRIMARY KEY (scenario, epoch, name)) WITHOUT ROWID;
CREATE TABLE laws (test TEXT, context TEXT, law TEXT NOT NULL, slack REAL NOT NULL, PRIMARY KEY (test, context))
    WITHOUT ROWID;
CREATE TABLE gauges (time REAL NOT NULL, worker INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL);
CREATE INDEX gauges_by_name ON gauges (name, time);
CREATE TABLE violations (
    scenario TEXT, epoch INTEGER, place INTEGER, time REAL NOT NULL, oracle TEXT NOT NULL, detail TEXT NOT NULL,
    bundle TEXT NOT NULL, PRIMARY KEY (scenario, epoch, place)) WITHOUT ROWID;
"""


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
        """Begin a segment of the run that `about` describes, and give its number; BadJournal names what differs."""
        with self._transaction():
            known = self.about
            for name, value in about.items():
                if known and known.get(name) != value:
                    raise BadJournal(f"{name}: this journal's run has {known.get(name)!r}, not {value!r}")
            if not known:
                written = [(name, json.dumps(value)) for name, value in about.items()]
                self.connection.executemany("INSERT INTO run VALUES (?, ?)", written)
            cursor = self.connection.execute("INSERT INTO segments (started) VALUES (?)", (time(),))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def end(self, segment: int, how: str) -> None:
        """End a segment; one that was killed has no end."""
        self.connection.execute("UPDATE segments SET ended = ?, how = ? WHERE segment = ?", (time(), how, segment))

    def add(self, segment: int, epoch: Epoch, served: Served) -> None:
        """Record an epoch with everything in it, in one transaction."""
        key = epoch.scenario, epoch.number
        timing = segment, served.worker, served.started, served.seconds, served.oracle_seconds
        told = epoch.verdict, epoch.digest, _json(epoch.counts)
        with self._transaction():
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
                [(*key, name, _json(bins)) for name, bins in epoch.histograms.items()],
            )
            run(
                "INSERT INTO violations VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (*key, place, time(), one.oracle, one.detail, _json(one.bundle))
                    for place, one in enumerate(epoch.violations)
                ],
            )

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

    def violations(self, behind: int = 0, most: int = -1) -> list[tuple[str, int, Violation]]:
        """What went wrong, with its scenario and epoch, in the order in which it was seen, from one on."""
        query = """SELECT scenario, epoch, oracle, detail, bundle FROM violations
            ORDER BY time, scenario, epoch, place LIMIT ? OFFSET ?"""
        rows = self.connection.execute(query, (most, behind))
        return [(s, e, Violation(o, d, json.loads(b))) for s, e, o, d, b in rows]

    def wrong(self) -> int:
        """How much went wrong."""
        (count,) = self.connection.execute("SELECT count(*) FROM violations").fetchone()
        return int(count)


class _Transaction:
    """All of the body or nothing of it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.connection.execute("COMMIT" if kind is None else "ROLLBACK")


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
