"""Captured passes: they say what passes say that run as they come, whatever else their buffers held."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE  # isort: split

from specqual import fixtures
from specqual.contract import Counted, Request, Round, Rule, Sampling, Setup
from specqual.decoder import make
from specqual.decoder.counts import Counts
from specqual.decoder.engine import Engine
from specqual.decoder.gpu import graphs
from specqual.decoder.gpu.graphs import Graphs, bucket
from specqual.decoder.gpu.rounds import Frame, Piece, Told
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import Pages
from specqual.decoder.slots import Slots

WHERE = "cuda" if DEVICE == "cuda" else "interpreter"
LONGEST = 4  # rows of a sample in a round
PAIRS = [("nano/hybrid", "nano/hybrid-dflash2"), ("nano/window", None)]


def store(samples: int = 16) -> Store:
    return Store(Pages((), 0, DEVICE), Slots(None, (), 0, LONGEST, torch.float32), samples)


def piece(length: int, start: int = 0) -> Piece:
    return Piece(Memory({}, None, 0), tuple(range(1, length + 1)), start, start, 0)


def body(there: Told, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What each row adds to the start of its own sample, and whether it has one."""
    places = torch.arange(len(rows), device=rows.device)[:, None]
    mine = (places >= there.spans.first[:-1]) & (places < there.spans.first[1:])
    return rows + (there.ids + (mine * there.spans.start).sum(1))[:, None], mine.any(1)


def passed(captured: Graphs, where: Store, *lengths: int, start: int = 0) -> list[float]:
    pieces = [piece(length, start + place) for place, length in enumerate(lengths)]
    found, _ = captured.run("test", body, pieces, (), where, torch.ones(sum(lengths), 1, device=DEVICE))
    expected = [float(2 + i + start + place) for place, length in enumerate(lengths) for i in range(length)]
    assert found[:, 0].tolist() == expected
    return expected


def counted(counts: Counts) -> list[int]:
    """Captures, replays, evictions and passes without a graph."""
    return [counts.found[name] for name in ("graph_captures", "graph_replays", "graph_evictions", "eager_passes")]


def test_batches_of_eight_and_fifteen_in_turn_capture_nothing_after_the_first_of_each() -> None:
    counts, where = Counts(), store()
    captured = Graphs(torch.device(DEVICE), where, counts, most=2)
    for turn in range(6):
        passed(captured, where, *[1 + (i + turn) % LONGEST for i in range(8 if turn % 2 else 15)], start=turn)
    assert counted(counts) == [2, 4, 0, 0]


def test_what_buffers_held_changes_nothing() -> None:
    where = store()
    captured = Graphs(torch.device(DEVICE), where, Counts(), most=2)
    for lengths in ((4, 2, 3), (1, 4), (2, 2, 2), (3,), (1, 3)):
        for graph in captured.kept.values():
            graph.flat.fill_(77)
            for tensor in (*graph.inputs, *graph.recorded.outputs):
                tensor.fill_(float("nan"))
        passed(captured, where, *lengths, start=len(lengths))


def test_rows_that_fill_up_a_frame_belong_to_no_sample() -> None:
    where = store()
    captured = Graphs(torch.device(DEVICE), where, Counts(), most=1)
    for lengths in ((4, 2, 3), (1, 4, 1), (2, 2, 2)):
        passed(captured, where, *lengths)
        (graph,) = captured.kept.values()
        assert len(graph.recorded.outputs[1]) == 4 * LONGEST
        assert int(graph.recorded.outputs[1].sum()) == sum(lengths)


def test_the_least_recently_used_graph_makes_room_and_comes_back_only_when_it_is_asked_for_twice_as_often() -> None:
    counts, where = Counts(), store()
    captured = Graphs(torch.device(DEVICE), where, counts, most=2)
    passed(captured, where, 2)
    passed(captured, where, 2, 2)
    passed(captured, where, 2)
    passed(captured, where, 1)  # for which the pair goes
    assert counted(counts) == [3, 1, 1, 0]
    passed(captured, where, 2, 2)
    assert counted(counts) == [3, 1, 1, 1]
    passed(captured, where, 2, 2)
    assert counted(counts) == [4, 1, 2, 1]


def test_more_shapes_in_turn_than_there_is_room_for_come_to_rest() -> None:
    counts, where = Counts(), store()
    captured = Graphs(torch.device(DEVICE), where, counts, most=1)
    for _ in range(64):
        passed(captured, where, 2)
        passed(captured, where, 2, 2)
    assert counts.found["graph_captures"] < 16


def test_long_spans_and_foreign_pools_run_as_they_come() -> None:
    counts, where = Counts(), store()
    captured = Graphs(torch.device(DEVICE), where, counts, most=2)
    passed(captured, where, LONGEST + 1, 1)
    passed(captured, store(), 2, 2)
    assert counted(counts) == [0, 0, 0, 2]


def test_a_frame_is_never_smaller_than_what_it_is_for_and_page_tables_grow_by_a_quarter_at_most() -> None:
    where = store(12)
    assert [bucket(Frame(n, 1, n, 0), where).samples for n in (1, 2, 3, 5, 9, 12)] == [1, 2, 4, 8, 12, 12]
    for pages in range(1, 5000, 7):
        found = bucket(Frame(1, 2, 2, pages), where)
        assert found is not None and pages <= found.pages < pages * 1.25 + graphs.PAGES
    assert len({bucket(Frame(1, 2, 2, pages), where) for pages in range(1, 8193)}) < 32


def decoder(pair: tuple[str, str | None], **options: Any) -> Engine:
    target, draft = pair
    found = None if draft is None else Path(fixtures.path(draft))
    rule, length = (Rule.NONE, None) if draft is None else (Rule.RATIO, 2)
    given = {"device": WHERE, "samples": 3, "prefixes": 0, **options}
    return make(Setup(target=Path(fixtures.path(target)), draft=found, rule=rule, draft_length=length, options=given))


@torch.inference_mode()
def played(engine: Engine, poison: bool) -> list[Round]:
    """The rounds of requests that come, are preempted, end and are cancelled beside each other, and cross a page."""
    prompts = [(3, 9, 4), (17,) * 13, (5, 8), (2, 2, 7)]
    greedy = Sampling(temperature=0.0)
    requests = [Request(prompt=prompt, max_tokens=8, sampling=greedy, ignore_eos=True) for prompt in prompts]
    requests[1] = replace(requests[1], sampling=Sampling(temperature=0.9, top_k=12), seed=7)
    first, second, third = (engine.submit(request) for request in requests[:3])

    def step() -> None:
        if poison:
            for graph in engine._target.passes.kept.values():
                graph.flat.fill_(1 << 20)
                for tensor in (*graph.inputs, *graph.recorded.outputs):
                    tensor.fill_(float("nan") if tensor.is_floating_point() else 1 << 20)
        engine.step()

    step()
    engine.preempt(second)
    step()
    engine.cancel(third)
    engine.resume(second)
    fourth = engine.submit(requests[3])
    for _ in range(3):
        step()
    return [one for request_id in (first, second, fourth) for one in engine.rounds(request_id)]


@pytest.mark.parametrize("pair", PAIRS, ids=["drafts", "plain"])
def test_a_decoder_with_graphs_says_what_it_says_without(pair: tuple[str, str | None]) -> None:
    with_graphs, without = decoder(pair, graphs=1), decoder(pair, graphs=0)
    assert played(with_graphs, True) == played(without, False)
    assert isinstance(with_graphs, Counted)
    found = with_graphs.counters()
    assert found["graph_replays"] and found["graph_captures"] > 1, found
    assert "graph_captures" not in without.counters()


def test_graphs_are_refused_by_field_where_there_are_none() -> None:
    for options, message in (
        ({"graphs": 1}, "graphs: must be 0 on device cpu"),
        (
            {"graphs": 1, "device": WHERE, "attention": "sdpa"},
            f"graphs: must be 0 on device {WHERE} with attention sdpa",
        ),
        ({"graphs": 2}, "graphs: must be an integer of at least 0 and at most 1"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            make(Setup(target=Path(fixtures.path("nano/dense")), options=options))
