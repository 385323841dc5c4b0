"""CXL: a cancelled request is gone: one final event, then silence, everything back, and nobody else notices."""

from specqual.conformance import scenes
from specqual.conformance.chapter import clause
from specqual.conformance.evidence import Evidence
from specqual.conformance.hazards import drafts
from specqual.conformance.lab import Lab


@clause("CXL-1")
def test_cancelled_requests_of_a_history_leave_nothing_behind(lab: Lab) -> Evidence:
    return lab.campaign.evidence("CXL", ["cancelled", "served beside another", *drafts(lab)])


@clause("CXL-2")
def test_a_request_can_be_cancelled_at_any_phase(lab: Lab) -> Evidence:
    phases = ["cancelled while waiting", "cancelled behind a round", "cancelled while held", *drafts(lab)]
    phases += ["cancelled in flight"] if lab.campaign.lagging else []
    phases += ["cancelled while being filled"] if lab.campaign.gradual else []
    return lab.campaign.scenes("CXL", scenes.around(lab, "cancel", thorough=lab.thorough), phases)


@clause("CXL-3")
def test_a_storm_of_cancellations_leaves_nothing_behind(lab: Lab) -> Evidence:
    return lab.campaign.scenes("CXL", scenes.storm(lab), ["cancelled", "served beside another"])
