"""RWD: what was rejected leaves no trace: rows, positions and lengths are those of the committed tokens alone."""

from specqual.conformance import scenes
from specqual.conformance.chapter import clause
from specqual.conformance.compare import comparable
from specqual.conformance.drive import NotOffered
from specqual.conformance.evidence import Evidence
from specqual.conformance.generators import edges
from specqual.conformance.lab import Lab

ROUNDS = ["partial acceptance", "full acceptance", "first draft rejected"]


@clause("RWD-1")
def test_caches_equal_a_replay_after_every_commit_of_a_history(lab: Lab) -> Evidence:
    comparable(lab, lab.campaign.twin)
    return lab.campaign.evidence("RWD", ["states compared", *(ROUNDS if lab.longest > 1 else ())])


@clause("RWD-2")
def test_caches_equal_a_replay_for_every_acceptance_at_every_offset_to_an_edge(lab: Lab) -> Evidence:
    if not lab.longest:
        raise NotOffered("speculation is off")
    comparable(lab, lab.campaign.twin)
    accepted = [f"{count} drafts accepted" for count in range(lab.longest + 1)]
    across = [f"drafted rounds across {edge} tokens" for edge in edges(lab)]
    hazards = ["states compared", "drafted behind undrafted", *accepted, *across]
    return lab.campaign.scenes("RWD", scenes.offsets(lab, thorough=lab.thorough), hazards)
