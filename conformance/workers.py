"""Which clauses stay together where pytest-xdist spreads a run over processes."""

from pathlib import PurePath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

PLAYED = ("test_rwd", "test_rec", "test_iso", "test_sch", "test_cxl", "test_res")


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """The chapters that look at the same histories go to one worker, so that these are played once; every other clause
    goes wherever there is room. Verdicts do not depend on it."""

    def _split_scope(self, nodeid: str) -> Any:
        return "histories" if PurePath(nodeid.partition("::")[0]).stem in PLAYED else nodeid
