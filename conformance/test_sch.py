"""SCH: when and in which pieces a request is served changes nothing of what it says."""

from specqual.conformance import scenes
from specqual.conformance.chapter import clause
from specqual.conformance.drive import NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import CHUNK, PAGE
from specqual.conformance.hazards import drafts
from specqual.conformance.lab import Lab


@clause("SCH-1")
def test_preempted_and_rescheduled_requests_of_a_history_say_the_same(lab: Lab) -> Evidence:
    lags = ["ticks with a round in flight"] if lab.campaign.lagging else []
    chunks = ["chunks changed under way"] if len(lab.twin.sizes.chunks) > 1 else []
    chunks += ["buckets changed under way"] if lab.twin.sizes.buckets else []
    hazards = ["preempted", "resumed", *chunks, *lags, *drafts(lab)]
    return lab.campaign.evidence("SCH", hazards)


@clause("SCH-2")
def test_a_request_that_waits_at_any_phase_says_the_same(lab: Lab) -> Evidence:
    phases = ["preempted while waiting", "preempted behind a round", *drafts(lab)]
    phases += ["preempted in flight"] if lab.campaign.lagging else []
    phases += ["preempted while being filled"] if lab.campaign.gradual else []
    return lab.campaign.scenes("SCH", scenes.around(lab, "preempt", thorough=lab.thorough), phases)


@clause("SCH-3")
def test_a_prompt_takes_no_more_passes_than_it_has_chunks(lab: Lab) -> Evidence:
    cases, longer, sizes = list[Case](), 0, lab.twin.sizes
    if not sizes.chunks:
        raise NotOffered("the decoder takes no prefill chunk that it was asked for")
    small, middle, large = (sizes.chunk(size) for size in (PAGE, 3 * PAGE, CHUNK))
    for length, chunk in ((1, large), (small + 1, small), (large, large), (large + 1, large), (2 * large + 2, middle)):
        request = scenes.requests(lab, f"SCH-3/{length}", [length], 6)[0]
        with lab.campaign.twin.fresh() as decoder:
            guarded("schedule", lambda size=chunk: decoder.schedule(chunk=size))
            rounds = serve(decoder, [request])[0].rounds or ()
        longer += len(request.prompt) > large
        most = [-(-len(request.prompt) // chunk)] + [1] * (len(rounds) - 1)
        more = [max(0, r.target_forwards - count) for r, count in zip(rounds, most, strict=True)]
        what = f"passes too many of each round, prompt {length}, chunk {chunk}"
        cases.append({"what": what, "expected": [0] * len(more), "actual": more})
    return Evidence("values", cases, [Guard("prompts of more than a chunk", longer)])
