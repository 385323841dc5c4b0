"""RWD: what was rejected leaves no trace: rows, positions and lengths are those of the committed tokens alone."""

from specqual.conformance.chapter import clause
from specqual.conformance.evidence import Evidence
from specqual.conformance.lab import Lab


@clause("RWD-1")
def test_caches_equal_a_replay_after_every_commit_of_a_history(lab: Lab) -> Evidence:
    return lab.campaign.evidence(
        "RWD", ["states compared", "partial acceptance", "full acceptance", "first draft rejected"]
    )
