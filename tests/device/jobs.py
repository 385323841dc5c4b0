"""Commands with a time limit each, some at a time, whose output goes to files."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from time import monotonic

from .source import ROOT

LEAST = 1.0  # seconds that a job gets, even if its part has none left
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A command, run at the top of the source tree."""

    name: str
    command: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended: `status` is None if its time was over, and `said` the last line of its output."""

    name: str
    command: str
    status: int | None
    seconds: float
    said: str

    @property
    def fine(self) -> bool:
        return self.status == 0

    def __str__(self) -> str:
        how = "out of time" if self.status is None else "fine" if self.fine else f"NOT FINE (status {self.status})"
        return f"{self.name}: {how}, {self.seconds:.0f} s: {self.said}"


def run(
    jobs: Iterable[Job],
    *,
    width: int,
    end: float,
    logs: Path,
    variables: Mapping[str, str],
    hear: Callable[[Ended], None],
) -> None:
    """Run jobs, `width` at a time, until the monotonic clock says `end`; their output goes to NAME.txt in `logs`."""
    logs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(width) as pool:
        waiting = [pool.submit(run_one, job, end, logs / f"{job.name}.txt", variables) for job in jobs]
        for done in as_completed(waiting):
            hear(done.result())


def go_along() -> None:
    """Have this process, a job, killed together with the thread that started it, which waits for it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_one(job: Job, end: float, log: Path, variables: Mapping[str, str]) -> Ended:
    """Run one job, and end it with all its processes when its time is over."""
    started, status = monotonic(), None
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [str(part) for part in job.command],
                cwd=ROOT,
                env={**variables, **job.variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=go_along if sys.platform == "linux" else None,
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            status = 127
        else:
            try:
                status = process.wait(max(LEAST, end - monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    text = log.read_text(errors="replace").strip()
    last = text.splitlines()[-1] if text else ""
    return Ended(job.name, join(map(str, job.command)), status, monotonic() - started, last.strip("= "))
