"""Faults of the optimised decoder about requests that are taken out: cancelled, preempted; and one that is no fault of
output or state, but a crash."""

from specqual.decoder import make
from specqual.decoder.engine import Engine

from .planting import replacing

sound_cancel = Engine.cancel


@replacing("cancel", Engine, sound=make)
def keeps_pages(self: Engine, request_id: int) -> None:
    """A cancelled request that has drafted keeps what it owns. Output exact; shows in a count of what is free."""
    for row in self._rows(request_id):
        if row.rounds:
            row.memory = None
    sound_cancel(self, request_id)


@replacing("preempt", Engine, sound=make)
def served_on(self: Engine, request_id: int) -> None:
    """A preempted request stays in the batch. Output exact; shows as events of a request that is held."""
    for row in self._rows(request_id):
        row.held = True


@replacing("resume", Engine, sound=make)
def crashes(self: Engine, request_id: int) -> None:
    """The engine breaks where a request is resumed."""
    raise RuntimeError("the engine broke")
