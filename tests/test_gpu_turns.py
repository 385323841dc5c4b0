"""Whole rounds as one graph: token for token, and law for law, what they are in parts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

from .twins import run_definitions  # isort: split

from specqual import fixtures
from specqual.contract import Event, Request, Round, Rule, Sampling, Setup
from specqual.decoder import make
from specqual.decoder.engine import Engine
from specqual.decoder.gpu import graphs
from specqual.decoder.gpu.turn import Seat
from specqual.decoder.gpu.walks import Way

from .test_gpu_graphs import WHERE

PAIRS = [
    ("nano/hybrid", "nano/hybrid-dflash2"),
    ("nano/window", "nano/window-selector"),
    ("nano/dense", "nano/dense-dflash"),
    ("nano/hybrid", "nano/hybrid-markov"),
]
ALONE = "nano/hybrid", None
RULES = [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH]
PLAIN, WARM = Sampling(temperature=0.0), Sampling(temperature=0.9, top_k=12)
OWN = Sampling(temperature=0.7, presence_penalty=0.5)  # which the host judges
SCHEDULE = {"chunk": (16, 64, 256), "lag": (0, 1), "draft": (0, 1, 2, 4)}
TEXTS = [tuple((7 * place + text) % 90 for place in range(140)) for text in range(2)]  # whose beginnings are shared
POLICIES = {"draft_tokens": 14, "draft_context": 100, "bucket": 24}


def decoder(pair: tuple[str, str | None], rule: Rule, draft_length: int | None = None, **options: Any) -> Engine:
    target, draft = pair
    found = None if draft is None else Path(fixtures.path(draft))
    there = {"device": WHERE, **options}
    return make(
        Setup(target=Path(fixtures.path(target)), draft=found, rule=rule, draft_length=draft_length, options=there)
    )


def poison(engine: Engine) -> None:
    """Fill whatever graphs own: a replay has to write all that it reads."""
    for graph in engine._target.passes.kept.values() if hasattr(engine._target.passes, "kept") else ():
        graph.flat.fill_(1 << 20)
        for tensor in graph.inputs:
            tensor.fill_(float("nan"))
        for tensor in graph.recorded.outputs:
            tensor.fill_(77)


def drawn(chance: Random) -> Request:
    return Request(
        prompt=chance.choice(TEXTS)[: chance.choice([1, 3, 15, 17, 40, 65, 80, 129])],
        max_tokens=chance.choice([1, 2, 9, 20]),
        sampling=chance.choices([PLAIN, WARM, OWN], [6, 3, 1])[0],
        seed=chance.randrange(99),
        n=chance.choice([1, 1, 1, 3]),
        ignore_eos=chance.random() < 0.5,
        stop_ids=tuple(chance.randrange(90) for _ in range(chance.choice([0, 0, 6]))),
    )


class Played(NamedTuple):
    """What an engine says, tick after tick and at the end."""

    events: list[list[Event]]
    resources: list[Mapping[str, int]]
    states: list[tuple[Any, ...]]  # of somebody who is in
    rounds: list[Round]
    counters: dict[str, int]  # except those of graphs


def looked(engine: Engine, request_id: int) -> tuple[Any, ...]:
    """All that is known of the first sample of a request, to the bit."""
    try:
        state = engine.inspect(request_id)
    except KeyError:  # waits
        return ()
    bits = [(name, tensor.numpy().tobytes()) for name, tensor in sorted(state.tensors.items())]
    return state.length, state.positions, state.pages, state.slot, bits


@torch.inference_mode()
def played(engine: Engine, seed: int, ticks: int, changing: bool = True) -> Played:
    """What an engine says when requests come, go and wait by chance, and its schedule changes."""
    chance, events, alive, everybody = Random(seed), list[list[Event]](), list[int](), list[int]()
    resources, states = list[Mapping[str, int]](), list[tuple[Any, ...]]()
    for tick in range(ticks):
        for _ in range(chance.choice([0, 0, 1, 3]) if len(alive) < 6 else 0):
            alive.append(engine.submit(drawn(chance)))
            everybody.append(alive[-1])
        if alive and chance.random() < 0.3:
            one = chance.choice(alive)
            chance.choice([engine.preempt, engine.resume, engine.resume, engine.cancel])(one)
        if changing and tick % 7 == 6:
            name = chance.choice(list(SCHEDULE))
            value = chance.choice(SCHEDULE[name])
            engine.schedule(**{name: min(value, engine.claims.limits.max_draft) if name == "draft" else value})
        poison(engine)
        events.append(engine.step())
        ended = {event.request_id for event in events[-1] if type(event).__name__ == "Finished"}
        alive = [one for one in alive if one not in ended]
        resources.append(engine.resources())
        states += [looked(engine, one) for one in alive[tick % 3 : tick % 3 + 1]]
    rounds = [one for request_id in everybody for one in engine.rounds(request_id)]
    counters = {name: count for name, count in engine.counters().items() if "graph" not in name and "eager" not in name}
    return Played(events, resources, states, rounds, counters)


@pytest.fixture
def definitions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    run_definitions(monkeypatch)
    monkeypatch.setattr(graphs, "PAGES", 1)
    yield


@pytest.mark.parametrize(
    ("pair", "rule"),
    [*[(pair, rule) for pair in PAIRS for rule in RULES], (ALONE, Rule.NONE)],
    ids=lambda one: (one[1] or "plain") if isinstance(one, tuple) else str(one),
)
@pytest.mark.usefixtures("definitions")
def test_captured_rounds_say_what_rounds_in_parts_say(pair: tuple[str, str | None], rule: Rule) -> None:
    most = 12 if pair is PAIRS[0] else 99
    options = {"captured": most, "samples": 5, "prefixes": 8}
    if rule is Rule.ONE_HOT:
        options |= POLICIES | ({"selector_rows": 2} if pair in PAIRS[:2] else {})
    narrow = decoder(pair, rule)._store
    pages = 5 * narrow.most_pages(40, 64) + narrow.most_pages(149, 256)
    captured, parts = (decoder(pair, rule, graphs=on, pages=pages, **options) for on in (1, 0))
    seed = sum(map(ord, f"{pair}{rule}")) + 1  # by which each has whole rounds
    for mine, theirs in zip(played(captured, seed, 40), played(parts, seed, 40), strict=True):
        assert mine == theirs
    found = captured.counters()
    assert found["graph_captures"] and found["graph_replays"] and bool(found["graph_evictions"]) == (most == 12)
    whole = {key[0] for key in captured._target.passes.kept}
    assert "turn" in whole or pair[1] == "nano/hybrid-markov"  # whose drafts are the host's


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.SAMPLER_MATCH])
@pytest.mark.parametrize("length", [0, 4])
@pytest.mark.usefixtures("definitions")
def test_a_tick_in_which_nobody_drafts_is_one_round_too(length: int, rule: Rule) -> None:
    told = list[list[Played]]()
    for on in (1, 0):
        engine = decoder(PAIRS[0], rule, draft_length=length, graphs=on)
        engine.schedule(draft=0)
        told.append([played(engine, 7, 12, changing=False)])
        engine.schedule(draft=length)  # what was taken in without drafts is there for those that come
        told[-1].append(played(engine, 8, 6, changing=False))
        if on:
            ways = {key[2] for key in engine._target.passes.kept if key[0] == "turn"}
            assert ways == ({Way.NOTHING, Way.SELECTOR} if length else {Way.NOTHING})
    assert told[0] == told[1]


@pytest.mark.usefixtures("definitions")
def test_batches_of_eight_and_fifteen_in_turn_capture_nothing_once_each_was_there() -> None:
    engine = decoder(PAIRS[0], Rule.RATIO, graphs=1, prefixes=0)
    request = Request(prompt=(3, 9, 4), max_tokens=18, sampling=PLAIN, ignore_eos=True)

    def wave() -> int:
        ids = [engine.submit(request) for _ in range(8)]
        for turn in range(4):
            engine.step()
            more = [engine.submit(Request(prompt=(5, turn), max_tokens=2, sampling=PLAIN)) for _ in range(7)]
            engine.step()
            for one in more:
                engine.cancel(one)
        for one in ids:
            engine.cancel(one)
        engine.step()
        return engine.counters()["graph_captures"]

    first = wave()
    assert wave() == first > 1
    assert engine.counters()["graph_evictions"] == 0


@pytest.mark.usefixtures("definitions")
def test_a_standing_round_runs_over_the_same_again_and_again() -> None:
    engine = decoder(PAIRS[0], Rule.RATIO, graphs=1, prefixes=0)
    engine.submit(Request(prompt=(3, 9, 4), max_tokens=9, sampling=PLAIN, ignore_eos=True))
    engine.step()
    turn, (memory,) = engine._turns.turn, engine._store.open
    before, tables = engine.resources(), {name: table[:] for name, table in memory.tables.items()}
    for streams in (turn.target.streams, turn.drafter.streams):
        turn.store.extend(memory, streams, memory.length + 1 + turn.slots)
    again = turn.standing([Seat(memory, 5, turn.slots)])
    with torch.inference_mode():
        again()
        again()
    turn.store.commit(memory, memory.length, memory.kept)
    assert engine.resources() == before and memory.tables == tables
    assert engine.step()


@pytest.mark.usefixtures("definitions")
def test_a_pool_that_is_tight_lets_cached_prefixes_go_alike_in_one_round_and_in_parts() -> None:
    cached, short = (tuple((7 * i + 5) % 90 for i in range(count)) for count in (65, 12))
    free = len(decoder(PAIRS[2], Rule.RATIO)._store.pages.own)  # pages for sixteen tokens
    for more in range(free):
        told = list[list[Any]]()
        for on in (1, 0):
            engine = decoder(PAIRS[2], Rule.RATIO, graphs=on, pages=5 * free + more, prefixes=8)
            for prompt, budget in ((cached, 1), (short, 18)):
                engine.submit(Request(prompt=prompt, max_tokens=budget, sampling=PLAIN, ignore_eos=True))
                engine.step()
            before = len(engine._prefixes._known)
            engine.step()  # drafts that reach into the next sixteen, and the first of them is wrong
            told.append([before, len(engine._prefixes._known), engine._store.open[0].length, engine.resources()])
        assert told[0] == told[1] and told[0][0] == 1 and told[0][2] < 16


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("definitions")
def test_a_slot_without_a_law_ends_the_drafts_alike_in_one_round_and_in_parts(rule: Rule) -> None:
    told = list[list[Any]]()
    for on in (1, 0):
        engine = decoder(PAIRS[0], rule, graphs=on)
        engine._proposer.codes.before[::3] = float("nan")  # behind every third token
        asked = [Sampling(temperature=1.4), PLAIN, Sampling(temperature=0.9, top_k=12)]
        ids = [engine.submit(Request(prompt=(3, 9, 4), max_tokens=30, sampling=one, seed=5)) for one in asked]
        events = [engine.step() for _ in range(12)]
        told.append([events, [engine.rounds(one) for one in ids]])
        assert "graph_captures" not in engine.counters() or "turn" in {key[0] for key in engine._target.passes.kept}
    assert told[0] == told[1]
    lengths = {len(one.proposals) for one in told[0][1][0]}
    assert {0, 1, 2} & lengths and 4 in lengths
    assert all(len(one.proposals) == 4 for one in told[0][1][1][1:-2])  # greedy drafts claim no law
