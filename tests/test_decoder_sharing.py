"""The samples of one request share what they have in common, and each says what it says alone."""

from collections.abc import Sequence

import pytest

from specqual.contract import Key, Request, Rule, Sampling
from specqual.decoder import Engine
from specqual.decoder.rng import Counter

from .engines import TARGETS, Said, engine, greedy, kept, next_id, said

WARM = Sampling(temperature=1.0, top_p=0.9)
LENGTHS = (1, 16, 63, 65)


class Shifted(Counter):
    """The decoder's own numbers for another sample: what it draws as sample 0 is what `sample` would draw."""

    def __init__(self, sample: int) -> None:
        self._sample = sample

    def uniform(self, key: Key) -> float:
        return super().uniform(Key(key.seed, self._sample, key.round_start, key.position, key.purpose))


def ids(length: int) -> list[int]:
    return [1 + (5 * j * j + length * j) % 94 for j in range(length)]


def apart(decoder: Engine, request: Request, count: int) -> Said:
    """What `count` samples of a request of one say, each served alone."""
    found = list[tuple[tuple[int, float], ...]]()
    for sample in range(count):
        decoder.tape(Shifted(sample))
        found += said(decoder, [request])[0]
    decoder.tape(None)
    return tuple(found)


def pages_of(decoder: Engine, request_id: int, samples: Sequence[int]) -> list[set[int]]:
    return [set(decoder.inspect(request_id, sample).pages) for sample in samples]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("drafter", [None, "dflash2"])
@pytest.mark.parametrize("sampling", [Sampling(), WARM])
def test_samples_of_one_request_equal_each_alone(target: str, drafter: str | None, sampling: Sampling) -> None:
    decoder, solo = engine(target, drafter, options={"prefixes": 0}), kept(target, drafter)
    for length in LENGTHS:
        together = greedy(ids(length), 6, n=3, sampling=sampling, seed=length)
        assert said(decoder, [together])[0] == apart(solo, greedy(ids(length), 6, sampling=sampling, seed=length), 3)
    assert decoder.resources() == engine(target, drafter, options={"prefixes": 0}).resources()


@pytest.mark.parametrize("rule", [Rule.ONE_HOT, Rule.SAMPLER_MATCH])
def test_samples_equal_each_alone_in_bfloat16_and_under_other_rules(rule: Rule) -> None:
    decoder = engine("hybrid", "dflash2", rule=rule, dtype="bfloat16")
    request = greedy(ids(40), 9, sampling=WARM, seed=3)
    assert said(decoder, [greedy(ids(40), 9, sampling=WARM, seed=3, n=3)])[0] == apart(decoder, request, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_a_prompt_is_filled_once_for_all_samples(target: str) -> None:
    decoder = engine(target, "dflash2", options={"prefixes": 0})
    passes = list[int]()
    forward = type(decoder._target).forward

    def counted(self: object, spans: Sequence[object], *rest: object) -> object:
        passes.append(sum(len(span.new) for span in spans))  # type: ignore[attr-defined]
        return forward(self, spans, *rest)  # type: ignore[arg-type]

    decoder.schedule(chunk=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(decoder._target), "forward", counted)
        said(decoder, [greedy(ids(100), 3, n=4, sampling=WARM)])
    assert passes[:4] == [32, 32, 32, 4] and sum(passes[:4]) == 100
    firsts = [r for r in decoder.rounds(0) if r.start == 99]
    assert [(r.sample, r.target_forwards) for r in firsts] == [(sample, 4) for sample in range(4)]


@pytest.mark.parametrize("target", TARGETS)
def test_pages_are_shared_until_somebody_writes(target: str) -> None:
    decoder = engine(target, "dflash2", options={"prefixes": 0})
    free = decoder.resources()["pages"]
    request_id = decoder.submit(greedy(ids(41), 80, n=3, sampling=WARM, seed=2))
    for tick in range(12):
        decoder.step()
        held = pages_of(decoder, request_id, range(3))
        assert len(set.union(*held)) == free - decoder.resources()["pages"]
        common = set.intersection(*held)
        tables = [decoder._live[request_id][sample].memory.tables for sample in range(3)]
        for name, stream in decoder._store.pages.streams.items() if tick else ():  # at the fork nobody has written yet
            behind = [page for table in tables for page in table[name][41 // 16 :] if page]
            assert len(set(behind)) == len(behind)
            if stream.window is None:
                assert common.issuperset(tables[0][name][: 41 // 16])
    decoder.cancel(request_id)
    assert decoder.resources()["pages"] == free


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lag", [0, 1])
def test_preempted_resumed_and_lagging_samples_equal_undisturbed(target: str, lag: int) -> None:
    decoder = engine(target, "dflash2", options={"prefixes": 2})
    requests = [greedy(ids(50), 8, n=3, sampling=WARM, seed=1), greedy(ids(20), 6), greedy(ids(70), 6, n=2)]
    expected = said(decoder, requests)
    decoder.schedule(chunk=16, lag=lag)
    for at in range(6):
        first = next_id(decoder)

        def disturb(tick: int, at: int = at, first: int = first) -> None:
            for victim in (first, first + 2):
                if tick == at and victim in decoder._live:
                    decoder.preempt(victim)
                if tick == at + 2 and victim in decoder._live:
                    decoder.resume(victim)

        assert said(decoder, requests, disturb) == expected


@pytest.mark.parametrize("lag", [0, 1])
def test_a_request_of_several_samples_cancelled_at_every_phase_leaves_nothing_behind(lag: int) -> None:
    decoder = engine("hybrid", "dflash2", options={"prefixes": 0})
    other = greedy(ids(33), 9, n=2, sampling=WARM, seed=5)
    expected, before = said(decoder, [other]), dict(decoder.resources())
    decoder.schedule(chunk=16, lag=lag)
    for at in range(6):
        victim = decoder.submit(greedy(ids(40), 12, n=3, sampling=WARM))

        def disturb(tick: int, at: int = at, victim: int = victim) -> None:
            if tick == at:
                decoder.cancel(victim)

        assert said(decoder, [other], disturb) == expected
        assert decoder.resources() == before


@pytest.mark.parametrize("target", TARGETS)
def test_samples_that_find_no_room_together_are_served_in_turn(target: str) -> None:
    probe = engine(target, "dflash2")
    request = greedy(ids(60), 8, n=4, sampling=WARM, seed=4)
    one = probe._most_pages(request)
    expected = said(probe, [request])
    for pages, samples in ((one, 4), (2 * one, 4), (3 * one - 1, 3)):
        decoder = engine(target, "dflash2", options={"prefixes": 0, "pages": pages, "samples": samples})
        assert said(decoder, [request]) == expected


def test_late_samples_share_among_themselves_and_not_with_one_that_has_gone_on() -> None:
    decoder = engine("hybrid", "dflash2", options={"prefixes": 0, "samples": 3})
    request = greedy(ids(60), 20, n=3, sampling=WARM, seed=4)
    expected = said(decoder, [request])
    decoder.schedule(chunk=16)
    assert said(decoder, [greedy([1], 12), greedy([1], 12), request])[2:] == expected
    first, *late = (r for r in decoder.rounds(3) if r.start == 59)
    assert [r.target_forwards for r in (first, *late)] == [4, 4, 4]


def test_shared_pages_are_promised_once() -> None:
    probe = engine("dense", "dflash2")
    long = greedy(ids(200), 4, n=2, sampling=WARM)
    one, small = probe._most_pages(long), greedy(ids(20), 4)
    room = 2 * one + probe._most_pages(small)
    decoder = engine("dense", "dflash2", options={"prefixes": 0, "pages": room - 1})
    for request in (long, small):
        decoder.submit(request)
    decoder.step()
    assert len(decoder._store.open) == 2  # before the prompt is in place each sample needs its own worst case
    decoder.step()
    assert len(decoder._store.open) == 3
    lasting = sum(stream.window is None for stream in decoder._store.pages.streams.values())
    assert decoder._store.promised == room - lasting * (200 // 16)
