"""ISO: a request is served as if it were alone: the same tokens, the same acceptance, the same q."""

from specqual.conformance import scenes
from specqual.conformance.chapter import clause
from specqual.conformance.evidence import Evidence
from specqual.conformance.hazards import drafts
from specqual.conformance.lab import Lab


@clause("ISO-1")
def test_requests_of_a_history_are_served_as_if_alone(lab: Lab) -> Evidence:
    return lab.campaign.evidence("ISO", ["served beside another", *drafts(lab)])


@clause("ISO-2")
def test_neither_order_nor_previous_owners_matter(lab: Lab) -> Evidence:
    return lab.campaign.scenes("ISO", scenes.owners(lab), ["served beside another", *drafts(lab)])
