"""Whatever was rejected wherever: the state after a round is bitwise that of decoding without drafts."""

import pytest

from specqual import fixtures
from specqual.contract import Finished, Proposal, Script, ScriptContext, Setup, State

from .engines import TARGETS, differing, engine, greedy
from .forced_reject import compare

FIRST, END = 2, 84  # committed lengths: from before the first edge of a window or page to behind that of a chunk of 64
MOST = 4  # K of the nano drafters


def plain(target: str) -> tuple[tuple[int, ...], dict[int, State]]:
    """The tokens of one output with its prompt, and the state at every length, drafting nothing."""
    decoder = engine(target, "dflash2")
    decoder.schedule(draft=0)
    request_id, states = decoder.submit(greedy((8, 6), END)), dict[int, State]()
    while not any(isinstance(event, Finished) for event in decoder.step()):
        state = decoder.inspect(request_id)
        states[state.length] = state
    return (8, 6, *(token for r in decoder.rounds(request_id) for token in r.committed)), states


def right_in_the_first(tokens: tuple[int, ...], counts: dict[int, int]) -> Script:
    """A drafter that knows all tokens, and for each request how many of its drafts are to be right."""

    def draft(context: ScriptContext) -> Proposal:
        start, right = len(context.tokens), counts[context.request_id]
        known = tokens[start : start + context.max_draft]
        return Proposal.certain(tuple(t if place < right else (t + 1) % 95 for place, t in enumerate(known)))

    return draft


@pytest.mark.parametrize("target", TARGETS)
def test_every_acceptance_at_every_offset_to_every_edge_leaves_the_state_of_plain_decoding(target: str) -> None:
    tokens, expected = plain(target)
    decoder, counts, rounds = engine(target, "dflash2"), dict[int, int](), set[tuple[int, int]]()
    decoder.script(right_in_the_first(tokens, counts))
    for accepted in range(MOST + 1):
        for shift in range(accepted + 1):  # so that rounds begin everywhere
            prompt = tokens[: FIRST + shift]
            counts[decoder.submit(greedy(prompt, END - len(prompt)))] = accepted
    live = set(counts)
    while live:
        live -= {event.request_id for event in decoder.step() if isinstance(event, Finished)}
        for request_id in live:
            state = decoder.inspect(request_id)
            assert differing(state, expected[state.length]) == []
            last = decoder.rounds(request_id)[-1]
            if len(last.proposals) == MOST:
                assert last.accepted == counts[request_id]
                rounds.add((last.accepted, last.start + 1))
    assert {(m, start) for m in range(MOST + 1) for start in range(FIRST + 1 + MOST, FIRST + 1 + 64 + MOST)} <= rounds


@pytest.mark.parametrize(("target", "tokens"), [("nano/hybrid", 160), ("nano/window", 100), ("small/hybrid", 40)])
def test_nothing_but_rejections_leaves_output_and_state_of_plain_decoding(target: str, tokens: int) -> None:
    outcome = compare(Setup(target=fixtures.path(target), draft=fixtures.path(f"{target}-dflash2")), tokens)
    assert outcome.clean, str(outcome)
