"""RES: pages and slots are conserved, have one owner, come back, and do not grow beyond what a length needs."""

from dataclasses import replace

from specqual.conformance import scenes
from specqual.conformance.chapter import clause
from specqual.conformance.drive import NotOffered
from specqual.conformance.evidence import Evidence, Guard
from specqual.conformance.generators import PAGE
from specqual.conformance.hazards import drafts
from specqual.conformance.lab import Lab
from specqual.conformance.longrun import held


@clause("RES-1")
def test_pages_and_slots_of_a_history_are_conserved_and_have_one_owner(lab: Lab) -> Evidence:
    lab.campaign.owning()
    return lab.campaign.evidence("RES", ["accounts closed", "idle ticks", *drafts(lab)])


@clause("RES-2")
def test_warm_requests_say_what_cold_ones_say(lab: Lab) -> Evidence:
    found = lab.campaign.scenes("RES", scenes.warm(lab), [])
    begun, hits = (int(found.notes.get(hazard, 0)) for hazard in ("prompts begun before", "prefix hits"))
    if begun and not hits and found.cases[0]["difference"] is None:
        raise NotOffered("no prompt was served from what an earlier one left behind")
    return replace(found, guards=[Guard("prompts begun before", begun), Guard("prefix hits", hits)])


@clause("RES-3")
def test_pages_held_do_not_grow_beyond_what_the_length_needs(lab: Lab) -> Evidence:
    lab.campaign.owning()
    pages = 3 if lab.window is None else 8  # until a stream that keeps all its rows is told from one with spare pages
    tokens = max(pages * PAGE, lab.effort.rejections // 2)
    request = scenes.requests(lab, "RES-3", [1], tokens)[0]
    cases, passed = held(lab, request)
    guards = [Guard("lengths at which pages were counted", len(cases))]
    if lab.window is not None and lab.window < tokens:
        guards.append(Guard("positions behind the window", passed))
    return Evidence("values", cases, guards)
