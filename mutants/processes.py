"""A process for every trial, because a broken decoder may hang or crash; the processes share one import of torch."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

from .trial import CRASHED, FINISHED, OUT_OF_TIME, Outcome, Said, Trial

PRELOADED = f"{__package__}.preloaded"
DONE = "done"


@dataclass(frozen=True, slots=True)
class Running:
    """A trial in its process."""

    trial: Trial
    process: BaseProcess
    started: float
    outcome: Outcome

    @property
    def left(self) -> float:
        """Seconds until its time limit."""
        return self.started + self.trial.limit - monotonic()


def work(trial: Trial, sender: Connection) -> None:
    """What a process does: send what each clause says, and at last that it is done."""
    from .preloaded import perform, single

    single()
    for said in perform(trial):
        sender.send(said)
    sender.send(DONE)
    sender.close()


def context() -> Any:
    """Processes are forked from a server that has imported everything, where the platform has that."""
    methods = multiprocessing.get_all_start_methods()
    found = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    found.set_forkserver_preload([PRELOADED])
    return found


def finished(
    trials: Iterable[Trial], workers: int, heard: Callable[[Trial, Said], None] = lambda trial, said: None
) -> Iterator[tuple[Trial, Outcome]]:
    """Run trials in their order, so many at once, and give each with what came of it as it ends.

    `heard` is told of every clause that is decided. A trial that passes its limit is killed.
    """
    waiting, running, start = iter(trials), dict[Connection, Running](), context()
    try:
        while True:
            while len(running) < workers and (trial := next(waiting, None)) is not None:
                receiver, sender = start.Pipe(duplex=False)
                process = start.Process(target=work, args=(trial, sender), daemon=True)
                process.start()
                sender.close()
                outcome = Outcome(trial.role, trial.name, FINISHED, 0.0)
                running[receiver] = Running(trial, process, monotonic(), outcome)
            if not running:
                return
            soonest = min(max(0.0, one.left) for one in running.values())
            ready = wait(list(running), timeout=soonest)
            for receiver in list(running):
                one, ended = running[receiver], None
                if receiver in ready:
                    said, ended = _received(receiver, one)
                    if said is not None:
                        running[receiver] = replace(one, outcome=one.outcome.plus(said))
                        heard(one.trial, said)
                elif one.left <= 0:
                    ended = OUT_OF_TIME
                if ended is not None:
                    yield one.trial, _ended(running.pop(receiver), receiver, ended)
    finally:
        for receiver, one in running.items():
            _ended(one, receiver, OUT_OF_TIME)


def _received(receiver: Connection, one: Running) -> tuple[Said | None, str | None]:
    """A clause that was decided, or how the process has ended."""
    try:
        message = receiver.recv()
    except EOFError:
        one.process.join(timeout=10)
        return None, f"{CRASHED}, exit status {one.process.exitcode}"
    return (None, FINISHED) if message == DONE else (message, None)


def _ended(one: Running, receiver: Connection, how: str) -> Outcome:
    if how == OUT_OF_TIME:
        one.process.kill()
    one.process.join()
    receiver.close()
    return replace(one.outcome, ended=how, seconds=round(monotonic() - one.started, 2))
