"""The lock of a journal: one process writes it, for as long as it lives."""

import sys
from pathlib import Path
from typing import IO


def locked(path: Path) -> IO[bytes] | None:
    """The file beside a journal that its writer holds locked until it is closed; None where files have no locks, and
    OSError where another process holds it.

    It is a file of its own because SQLite loses its locks when a journal is closed that was opened beside it."""
    if sys.platform == "win32":
        return None
    from fcntl import LOCK_EX, LOCK_NB, flock

    lock = path.with_name(f"{path.name}.lock").open("ab")
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError:
        lock.close()
        raise
    return lock
