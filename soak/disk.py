"""A full disk under the journal: at the first page that cannot be written, at the second, … until all can be."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .afflictions import NoDrill
from .journal import NAME, Journal
from .records import Epoch, Increment, Served, Violation
from .trial import Fate, Trial

FRAME = 4096 + 24  # bytes of one page in the write-ahead log
RECORDED = 3  # epochs that are there before the disk is full


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes; NoDrill where the platform has no such limit."""
    try:
        from resource import RLIMIT_FSIZE, getrlimit, setrlimit
    except ImportError:
        raise NoDrill("this platform cannot limit the size of a file") from None
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))


def an_epoch(number: int) -> Epoch:
    """An epoch that takes some pages to write down."""
    bins = {"regret": {f"{edge}": number for edge in range(300)}}
    evidence = tuple(Increment(f"law {k}", 0.5, 900, {"a": tuple(range(200))}) for k in range(6))
    bundle = Violation("none", "a drill", {"tokens": list(range(900))})
    return Epoch("disk", number, "EXACT", f"{number:064x}", {"requests": 9}, evidence, bins, (bundle,))


def full_disk() -> Iterator[Trial]:
    """What is recorded stays, what was being recorded is there whole or not at all, and goes in once there is room."""
    place = 0
    while True:
        place += 1
        with TemporaryDirectory(prefix="specqual-soak-") as folder:
            file = Path(folder) / NAME
            journal = Journal.open(file)
            segment = journal.begin({"seed": 0})
            for number in range(RECORDED):
                journal.add(segment, an_epoch(number), Served(0, 0.0, 1.0, 0.0))
            written = file.with_name(f"{NAME}-wal").stat().st_size
            try:
                with at_most(written + place * FRAME - FRAME // 2):
                    journal.add(segment, an_epoch(RECORDED), Served(0, 0.0, 1.0, 0.0))
            except sqlite3.Error as error:
                raised = f"{type(error).__name__}: {error}"
            else:
                journal.close()
                return
            kept = recorded(file)
            journal.add(segment, an_epoch(RECORDED), Served(0, 0.0, 1.0, 0.0))
            journal.close()
            whole = kept == list(range(RECORDED)) and recorded(file) == list(range(RECORDED + 1))
            yield Trial(Fate.KEPT if whole else Fate.WRONG, f"{raised}; epochs {kept} were there")


def recorded(file: Path) -> list[int]:
    """The epochs that somebody else finds in a journal, each with all that belongs to it; none where it is damaged."""
    journal = Journal.read(file)
    try:
        if journal.connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            return []
        evidence = [(epoch, one) for _, epoch, one in journal.increments()]
        bundles = {one.epoch: one.violation for one in journal.violations()}
        return [
            epoch
            for _, epoch, *_ in journal.rows()
            if tuple(one for e, one in evidence if e == epoch) == an_epoch(epoch).evidence
            and bundles.get(epoch) == an_epoch(epoch).violations[0]
        ]
    finally:
        journal.close()
