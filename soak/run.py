"""A run: worker processes that take epochs, one journal, and an end at any time."""

import json
import multiprocessing
import signal
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, time
from typing import Any

from specqual.conformance.verdicts import Verdict

from .about import About, Task, stage_of
from .calls import LONGEST
from .journal import Journal
from .records import CUT, DECODER, PROCESS, Epoch, Finding, Served, Violation
from .worker import main

GRACE = 120.0  # seconds for epochs under way when the time is up
HUNG = 2 * LONGEST  # seconds without a word behind which a worker, whose own deadlines did not ring, is killed
LEAVE = 5.0  # seconds that a worker has to leave
BUNDLES = "violations"  # folder beside the journal, with a file that --replay takes for each
BROKEN = 100  # epochs on end that break, behind which there is no more to be had of a decoder
TRIES = 2  # of an epoch whose worker dies
NOTHING: Task = ("", 0)  # what a worker is at that is at nothing
BEAT = 0.5  # seconds between two looks at the clock


@dataclass
class Worker:
    """One process, what it is at, and since when."""

    index: int
    process: BaseProcess
    connection: Connection
    task: Task | None = None
    since: float = 0.0  # time of day
    began: float = 0.0  # the same by a clock that nobody sets
    heard: float = 0.0  # by that clock, when it last said something
    killed: bool = False  # on purpose
    behind: list[Task] = field(default_factory=list)  # epochs of the decoders that live in it

    def give(self, task: Task) -> None:
        self.task, self.since = task, time()
        self.began = self.heard = monotonic()
        with suppress(BrokenPipeError):  # it is gone, as its connection will say
            self.connection.send(task)

    def served(self, epoch: Epoch) -> None:
        """It has nothing to do. Where an epoch broke, the next one on its stage has a new decoder."""
        task = (epoch.scenario, epoch.number)
        if epoch.broke:
            self.behind = [one for one in self.behind if stage_of(one) != stage_of(task)]
        elif epoch.verdict is not Verdict.SKIPPED:
            self.behind.append(task)
        self.task = None

    @property
    def hung(self) -> bool:
        return self.task is not None and monotonic() - self.heard > HUNG

    @property
    def seconds(self) -> float:
        """How long it has been at what it is at."""
        return monotonic() - self.began

    def end(self) -> None:
        """Let it leave, and kill it where it does not."""
        self.process.terminate()
        self.process.join(LEAVE)
        self.process.kill()
        self.process.join()
        self.connection.close()


@dataclass
class Soak:
    """A run under way. `beat` is called about twice a second, for whoever shows it; `stop` ends it with that reason."""

    about: About
    journal: Journal
    workers: int
    seconds: float
    beat: Callable[["Soak"], None] = lambda soak: None
    identity: Mapping[str, Any] | None = None  # of the run, where somebody has read its checkpoints for it already
    stopped: str | None = None
    segment: int = 0
    team: list[Worker] = field(default_factory=list)
    died: dict[Task, int] = field(default_factory=dict)  # how often a worker died of an epoch
    skipped: set[str] = field(default_factory=set)  # scenarios that this decoder cannot be had for
    broken: int = 0  # epochs on end
    trouble: str | None = None  # why what waits to be recorded cannot be
    folder: str = ""  # of all that its workers keep for a while
    _again: deque[Task] = field(default_factory=deque)
    _unwritten: deque[Callable[[], None]] = field(default_factory=deque)

    def stop(self, how: str) -> None:
        self.stopped = self.stopped or how

    def run(self) -> str:
        """Serve epochs until the time is up or somebody stops it; says how it ended. What is recorded stays valid
        wherever this is cut off; while nothing can be recorded, nothing is begun."""
        self.segment = self.journal.begin(self.identity or self.about.json() | self.about.made_with())
        done = self.journal.done()
        tasks = (task for task in self.about.tasks() if task not in done)
        with TemporaryDirectory(prefix="specqual-soak-", ignore_cleanup_errors=True) as self.folder:
            return self._served(tasks)

    def _served(self, tasks: Iterator[Task]) -> str:
        deadline = monotonic() + self.seconds
        self.team = team = [self._started(index) for index in range(self.workers)]
        try:
            while self.stopped is None:
                late = monotonic() - deadline
                if late >= 0 and (late > GRACE or not any(worker.task for worker in team)):
                    self._cut(team)
                    break
                self._write()
                for worker in team:
                    if worker.task is None and late < 0 and self.trouble is None:
                        worker.give(self._again.popleft() if self._again else next(tasks))
                for ready in wait([worker.connection for worker in team], BEAT):
                    place = next(place for place, worker in enumerate(team) if worker.connection is ready)
                    team[place] = self._heard(team[place])
                for worker in team:
                    if worker.hung:
                        worker.process.kill()  # its connection will say so
                self.beat(self)
        finally:
            for worker in team:
                worker.end()
            self._write()
            how = self.stopped or "time is up"
            if self.trouble is not None:
                how += f", and the journal could not be written: {self.trouble}"
            with suppress(sqlite3.Error):  # a segment without an end was cut off, which is true of this one
                self.journal.end(self.segment, how)
        return how

    def _started(self, index: int) -> Worker:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=main, args=(theirs, self.about, index, self.folder), daemon=True)
        process.start()
        theirs.close()
        return Worker(index, process, mine)

    def _heard(self, worker: Worker) -> Worker:
        """Record what a worker says; one that is gone has its epoch served again by a new one."""
        try:
            said = worker.connection.recv()
        except (EOFError, OSError):  # gone, perhaps in the midst of saying something
            return worker if self.stopped else self._replaced(worker)  # who stops a run may stop its workers, too
        worker.heard = monotonic()
        if said[0] == "gauges":
            with suppress(sqlite3.Error):  # there will be others
                self.journal.gauge(worker.index, said[1])
        else:
            self._record(said[1], said[2])
            worker.served(said[1])
            if said[1].verdict is Verdict.SKIPPED:
                self.skipped.add(said[1].scenario)
                if self.skipped.issuperset(self.about.scenarios):
                    self.stop("nothing that was asked for can be had of this decoder")
        return worker

    def _record(self, epoch: Epoch, served: Served) -> None:
        def write() -> None:
            file_bundles(self.journal.path.parent / BUNDLES, self.journal.add(self.segment, epoch, served))

        self._unwritten.append(write)
        self._write()
        if epoch.verdict is not Verdict.SKIPPED:
            self.broken = self.broken + 1 if epoch.broke else 0
        if self.broken == BROKEN:
            self.stop(f"{BROKEN} epochs on end broke")

    def _note(self, worker: Worker, oracle: str, told: str) -> None:
        """Record what happened to the process that serves an epoch."""
        task = worker.task or NOTHING
        one = Violation(oracle, told, self.about.again(task, worker.behind))
        self._unwritten.append(lambda: self.journal.note(*task, one))
        self._write()

    def _write(self) -> None:
        """Record what waits to be; where that fails it waits on, as for a disk that is full. IntegrityError where an
        epoch is there already: no waiting mends that."""
        try:
            while self._unwritten:
                self._unwritten[0]()
                self._unwritten.popleft()
            self.trouble = None
        except sqlite3.IntegrityError:
            self._unwritten.clear()
            raise
        except sqlite3.Error as error:
            self.trouble = str(error)

    def _cut(self, team: list[Worker]) -> None:
        """Note the epochs that have no end although the time has been up for long."""
        for worker in team:
            if worker.task is not None:
                told = f"had no end {worker.seconds:.0f} seconds behind its beginning, when the time was up"
                self._note(worker, CUT, told)

    def _replaced(self, worker: Worker) -> Worker:
        """A new process for one that is gone, which is noted unless it was killed on purpose."""
        hung, task, process = worker.hung, worker.task or NOTHING, worker.process
        process.join(LEAVE)  # its connection is closed a little before it has ended
        worker.end()
        died = f"process {process.pid} ended with status {process.exitcode}"
        told = f"heard nothing for {HUNG:.0f} seconds, and killed: {died}" if hung else died
        if not worker.killed:
            self._note(worker, PROCESS, f"{told}, {worker.seconds:.0f} seconds behind the beginning of an epoch")
        if worker.task is not None:
            self.died[task] = self.died.get(task, 0) + 1
            if self.died[task] < TRIES:
                self._again.append(task)
            else:
                often = f"its process died {TRIES} times; the last time, {told}"
                one = Violation(DECODER, often, self.about.again(task, worker.behind))
                epoch = Epoch(*task, Verdict.ERROR, "", violations=(one,))
                self._record(epoch, Served(worker.index, worker.since, worker.seconds, 0.0))
        return self._started(worker.index)


def file_bundles(folder: Path, kept: Iterable[Finding]) -> None:
    """A file for each violation, as --replay takes it. They are in the journal, too, so a full disk loses nothing."""
    for one in kept:
        file = folder / f"{one.scenario}-{one.epoch}-{one.place}.json".replace(" ", "-")
        told = {"oracle": one.violation.oracle, "detail": one.violation.detail, **(one.violation.bundle or {})}
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            file.write_text(json.dumps(told, indent=1) + "\n")


@contextmanager
def stopping(soak: Soak) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the run in order."""

    def stop(number: int, frame: Any) -> None:
        soak.stop(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
