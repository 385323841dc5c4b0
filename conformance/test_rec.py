"""REC: recurrent and convolutional state is that of the committed tokens, whatever was drafted and rejected."""

from specqual.conformance import quotas, scenes
from specqual.conformance.chapter import clause
from specqual.conformance.compare import comparable
from specqual.conformance.drive import NotOffered
from specqual.conformance.evidence import Evidence, Guard
from specqual.conformance.lab import Lab
from specqual.conformance.longrun import rejected


def recurrent(lab: Lab) -> None:
    """Raise NotOffered where nothing of the kind is kept."""
    if not lab.campaign.recurrent:
        raise NotOffered("the target has no recurrent layer, or the decoder does not show its state")
    comparable(lab, lab.campaign.twin)


@clause("REC-1")
def test_recurrent_state_equals_a_replay_after_every_commit_of_a_history(lab: Lab) -> Evidence:
    recurrent(lab)
    rounds = ["partial acceptance", "first draft rejected", "no draft"] if lab.longest > 1 else []
    return lab.campaign.evidence("REC", ["states compared", *rounds])


@clause("REC-2")
def test_recurrent_state_equals_a_replay_behind_undrafted_and_mixed_rounds(lab: Lab) -> Evidence:
    recurrent(lab)
    if not lab.longest:
        raise NotOffered("speculation is off")
    hazards = ["undrafted behind an acceptance", "drafted beside undrafted", "drafted behind undrafted"]
    return lab.campaign.scenes("REC", scenes.uneven(lab), ["states compared", *hazards])


@clause("REC-3")
def test_a_run_of_rejections_equals_plain_decoding(lab: Lab) -> Evidence:
    if not lab.longest:
        raise NotOffered("speculation is off")
    comparable(lab, lab.campaign.twin)
    request = scenes.requests(lab, "REC-3", [5], lab.effort.rejections)[0]
    case, rejections, states = rejected(lab, request)
    needed = quotas.rejected(request.max_tokens, lab.claims.limits)
    guards = [Guard("rounds rejected whole", rejections, needed), Guard("states compared", states)]
    return Evidence("histories", [case], guards)
