"""Gauges read what is there, and say nothing that is not."""

import mmap

import pytest

from specqual import fixtures
from specqual.contract import Finished, Request, Setup
from specqual.decoder import make
from specqual.soak.gauges import AT_REST, EVERY, RESTS, Meter, by_stretch, resident, stretch, trimmed


class Watch:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def decoder():
    return make(Setup(target=fixtures.path("nano/dense"), draft=fixtures.path("nano/dense-dflash2")))


def served(meter, decoder, request):
    request_id = decoder.submit(request)
    meter.submitted()
    events = []
    while not any(isinstance(event, Finished) for event in events):
        events = decoder.step()
        meter.heard(events)
    meter.ended(len(request.prompt), decoder.rounds(request_id))


def test_a_meter_is_due_every_ten_seconds_and_rates_are_of_the_time_since(decoder):
    watch = Watch()
    meter = Meter(watch, {"nano": decoder})
    meter.read()
    served(meter, decoder, Request(prompt=(1, 2, 3), max_tokens=20, ignore_eos=True))
    assert not meter.due
    watch.now = EVERY
    assert meter.due
    found = meter.read()
    assert (found["tokens/s"], found["requests"], found["queue"]) == (20 / EVERY, 1, 0)
    assert found["free pages nano"] == decoder.resources()["pages"] and "graph captures nano" not in found
    assert not meter.due
    meter.submitted()
    meter.idle()  # as when an epoch breaks
    assert meter.read()["queue"] == 0


def test_acceptance_is_told_by_how_much_was_generated(decoder):
    meter, before = Meter(Watch(), {"nano": decoder}), decoder.counters()
    served(meter, decoder, Request(prompt=(5, 6), max_tokens=40, ignore_eos=True))
    found, after = meter.read(), decoder.counters()
    drafted = {name: n for name, n in found.items() if name.startswith("drafted @")}
    assert set(drafted) <= {f"drafted @{edge}" for edge in (1, 2, 4, 8, 16, 32)} and found["drafted @1"] == 1
    assert sum(drafted.values()) == after["drafted_rounds"] - before["drafted_rounds"]
    assert set(by_stretch(2, decoder.rounds(1))[1]) <= {int(name.partition("@")[2]) for name in drafted}


def test_stretches_are_powers_of_two():
    assert [stretch(n) for n in (0, 1, 2, 3, 4, 7, 8, 1000)] == [0, 1, 2, 2, 4, 4, 8, 512]


def test_memory_is_that_of_this_process():
    before, held = resident(), mmap.mmap(-1, 64 * 2**20)  # a mapping, since an allocator may have 64 MB at hand
    for page in range(0, len(held), mmap.PAGESIZE):
        held[page] = 1
    assert 50 < resident() - before < 90
    held.close()


def test_memory_at_rest_is_read_now_and_then_and_without_what_an_allocator_keeps(decoder):
    watch = Watch()
    meter = Meter(watch, {"nano": decoder})
    assert not meter.rests
    watch.now = RESTS
    meter.submitted()
    assert not meter.rests  # somebody is served
    meter.idle()
    assert meter.rests and set(meter.at_rest()) == {"process", "requests", "decoders", AT_REST} and not meter.rests
    before = trimmed()
    rows = [bytes(2_000) for _ in range(30_000)]  # 60 MB in small pieces, one in thirty of which stays
    kept = rows[::30]
    del rows
    assert trimmed() - before < 30 and kept
