"""What the optimised decoder keeps: bitwise what a fresh replay gives, owned once, and given back."""

import pytest

from specqual.contract import Finished, FinishReason, Refused, Request, Sampling

from .engines import TARGETS, UNEQUAL, alone, differing, engine, greedy, kept, right_but, said

LONG = 6  # drafts of a scripted round


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("accepted", range(LONG + 1))
def test_state_equals_a_fresh_replay_after_every_acceptance_count(target: str, accepted: int) -> None:
    request = greedy([8, 6, 7, 5], 26)
    known = [token for token, _ in alone(kept(target), [request])[0][0]]
    decoder, replay = engine(target, draft_length=LONG), kept(target)
    decoder.script(right_but(known, 4, lambda index: accepted if index % 3 else 0))
    request_id = decoder.submit(request)
    seen = set()
    for tick in range(60):
        if any(isinstance(event, Finished) for event in decoder.step()):
            break
        rounds = decoder.rounds(request_id)
        seen.add(rounds[-1].accepted)
        if tick % 3 == 1:
            fresh = replay.submit(greedy((*request.prompt, *(t for r in rounds for t in r.committed[:99])), 2))
            replay.step()  # its prompt is all that was committed, the anchor too
            state, twin = decoder.inspect(request_id), replay.inspect(fresh)
            replay.cancel(fresh)
            assert twin.length == state.length + 1
            shorter = replay.submit(greedy((*request.prompt, *(t for r in rounds for t in r.committed))[:-1], 2))
            replay.step()
            assert differing(state, replay.inspect(shorter)) == []
            replay.cancel(shorter)
            replay.step()
    assert accepted in seen


@pytest.mark.parametrize("target", TARGETS)
def test_the_drafters_context_equals_a_fresh_replay(target: str) -> None:
    decoder, replay = kept(target, "dflash2"), engine(target, "dflash2")
    request = greedy([8, 6, 7, 5], 30)
    request_id = decoder.submit(request)
    for length in (4, 0, 2, 4, 0, 1, 3):
        decoder.schedule(draft=length)
        decoder.step()
        tokens = (*request.prompt, *(t for r in decoder.rounds(request_id) for t in r.committed))
        fresh = replay.submit(greedy(tokens[:-1], 2))
        replay.step()
        assert differing(decoder.inspect(request_id), replay.inspect(fresh)) == []
        replay.cancel(fresh)
    decoder.schedule(draft=4)
    decoder.cancel(request_id)
    decoder.step()


@pytest.mark.parametrize("target", TARGETS)
def test_pages_and_slots_have_one_owner_and_come_back(target: str) -> None:
    decoder = engine(target, "dflash2", options={"prefixes": 0})
    before = dict(decoder.resources())
    total = before["pages"]

    def conserved(tick: int) -> None:
        held = {
            request_id: [decoder.inspect(request_id, sample) for sample, row in enumerate(rows) if row.memory]
            for request_id, rows in decoder._live.items()
        }
        pages = [page for states in held.values() for page in {page for state in states for page in state.pages}]
        slots = [state.slot for states in held.values() for state in states if state.slot is not None]
        assert len(set(pages)) == len(pages) == total - decoder.resources()["pages"]  # samples of one request share
        assert len(set(slots)) == len(slots)

    said(decoder, [*UNEQUAL, greedy([1, 2], 9, n=3, sampling=Sampling(temperature=1.0))], conserved)
    assert decoder.resources() == before


def test_a_window_keeps_its_pages_and_no_more() -> None:
    decoder = engine("window", "dflash2")
    request_id = decoder.submit(greedy([3] * 40, 200))
    for _ in range(80):
        decoder.step()
    state, memory = decoder.inspect(request_id), decoder._live[request_id][0].memory
    assert memory is not None and state.length > 100
    held = {name: sum(page != 0 for page in table) for name, table in memory.tables.items()}
    assert held["target.1"] == -(-state.length // 16)
    assert max(held["target.0"], held["draft.0"]) <= 2


def test_junk_behind_the_valid_length_is_never_seen() -> None:
    for target in TARGETS:
        decoder = engine(target, "dflash2")
        decoder._store.pages._data[1:] = 255  # NaN in every format
        assert said(decoder, UNEQUAL[:2]) == said(kept(target, "dflash2"), UNEQUAL[:2])


def test_a_pool_with_room_for_one_serves_many_in_turn() -> None:
    decoder = engine("hybrid", "dflash2", options={"pages": 40, "samples": 3})
    assert said(decoder, UNEQUAL) == said(kept("hybrid", "dflash2"), UNEQUAL)


def test_a_full_pool_takes_pages_back_from_the_prefix_cache() -> None:
    prompts = [[1 + (i * j + j * j) % 94 for j in range(70 + i)] for i in range(6)]
    requests = [greedy(prompt, 6) for prompt in (*prompts, *prompts)]
    decoder = engine("hybrid", "dflash2", options={"pages": 64, "samples": 2})
    assert said(decoder, requests) == alone(engine("hybrid", "dflash2", options={"prefixes": 0}), requests)
    assert decoder.resources() == {"pages": 64, "slots": 4, "samples": 2}


def test_what_can_never_fit_is_refused_by_an_event() -> None:
    decoder = engine("dense", "dflash2", options={"pages": "12"})
    for request, why in ((greedy([1] * 512, 1), "context"), (greedy([1] * 100, 9), "pool")):
        request_id = decoder.submit(request)
        (event,) = decoder.step()
        assert isinstance(event, Refused) and event.request_id == request_id and why in event.error
    assert alone(decoder, [greedy([1, 2, 3], 5)]) == alone(kept("dense"), [greedy([1, 2, 3], 5)])


def test_cancelled_while_filled_drafted_or_preempted_leaves_neighbours_alone() -> None:
    decoder = kept("hybrid", "dflash2")
    before, expected = dict(decoder.resources()), said(decoder, UNEQUAL[1:3])
    for at in range(4):
        other, finals = decoder.submit(Request(prompt=(9,) * 70, max_tokens=30)), list[Finished]()

        def disturb(tick: int, at: int = at, other: int = other, finals: list[Finished] = finals) -> None:
            if tick == 1 and at == 3:
                decoder.preempt(other)
            if tick == at:
                decoder.cancel(other)
                finals.extend(e for e in decoder._events if isinstance(e, Finished))

        assert said(decoder, UNEQUAL[1:3], disturb) == expected
        assert [final.reasons for final in finals] == [(FinishReason.CANCELLED,)]
        assert decoder.resources() == before
