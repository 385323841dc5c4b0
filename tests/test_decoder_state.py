"""What the optimised decoder keeps: bitwise what a fresh replay gives, owned once, and given back."""

from specqual.contract import Refused

from .engines import TARGETS, UNEQUAL, alone, engine, greedy, kept, said

LONG = 6  # drafts of a scripted round


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
