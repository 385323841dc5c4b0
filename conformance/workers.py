"""Which clauses stay together where pytest-xdist spreads a run over processes."""

from pathlib import PurePath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from .clauses import PLAYED

FILES = frozenset(f"test_{chapter.lower()}" for chapter in PLAYED)


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """The chapters that look at the same histories go to one worker, so that these are played once; every other clause
    goes wherever there is room. Verdicts do not depend on it."""

    def _split_scope(self, nodeid: str) -> Any:
        return "histories" if PurePath(nodeid.partition("::")[0]).stem in FILES else nodeid

    def remove_node(self, node: Any) -> str | None:
        """The test that a worker died of, if it did; that one is over, and its other tests go to whoever comes."""
        workload = self.assigned_work.pop(node)
        open_ = [(unit, nodeid) for unit in workload.values() for nodeid, done in unit.items() if not done]
        if not open_:
            return None
        unit, crashed = open_[0]
        unit[crashed] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def schedule(self) -> None:
        """Twice for a worker in the place of one that died: with one test alone it would wait for what comes next."""
        super().schedule()
        if self.collection is not None:
            for node in self.nodes:
                self._reschedule(node)
