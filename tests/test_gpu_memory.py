"""What passes hold at full size, by every tensor that they make, is what `specqual plan` says."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch

from .meter import NOWHERE, Meter, weigh_nothing  # isort: split

from benchmarks.gpu.memory import LINES
from benchmarks.gpu.rig import Rig, drafter_of, pools, target_of
from benchmarks.gpu.session import Session
from specqual.contract import Rule
from specqual.decoder.gpu import splits
from specqual.decoder.gpu.budget import Load, Pair, budget
from specqual.decoder.gpu.carry import joined, parted
from specqual.decoder.gpu.turn import Seat, Turn
from specqual.decoder.gpu.walks import Way
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE
from specqual.decoder.schedule import LONGEST_CHUNK
from specqual.decoder.span import Span

LARGE, SMALL = "geometry/qwen3.8-27b", "geometry/qwen3-4b"


class Made(NamedTuple):
    """A pair at full size, of which nothing exists."""

    pair: Pair
    rig: Rig


@pytest.fixture(scope="module")
def nothing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        weigh_nothing(patch)
        yield


@pytest.fixture(scope="module", params=[LARGE, SMALL])
def made(request: pytest.FixtureRequest, nothing: None) -> Made:
    session = Session.of(request.param, NOWHERE, 1, 1)
    target = target_of(session.target_path, session.draft_path, NOWHERE)
    return Made(session.pair, Rig(target, drafter_of(session.draft_path, target, nvfp4=True), True))


def seated(rig: Rig, batch: int, context: int, length: int) -> tuple[Store, list[Memory]]:
    """Samples whose pages are there up to a context, `length` tokens of which have been."""
    store = pools(rig, batch, context)
    memories = [store.take(store.most_pages(context, LONGEST_CHUNK)) for _ in range(batch)]
    for memory in memories:
        assert memory is not None
        memory.length = length
        for stream in store.pages.own:
            memory.tables[stream.name].extend([1] * -(-(context + rig.span) // PAGE))
    return store, [memory for memory in memories if memory is not None]


def planned(made: Made, batch: int, context: int, begins: str = "") -> int:
    return sum(item.bytes for item in budget(made.pair, Load(batch, context, True)) if item.name.startswith(begins))


@pytest.mark.parametrize(("batch", "context"), [(15, 4096), (1, 40_960)])
def test_the_widest_pass_holds_what_the_plan_says(made: Made, batch: int, context: int) -> None:
    splits.owned(NOWHERE)
    start = context - LONGEST_CHUNK
    store, memories = seated(made.rig, batch, context, start)
    spans = [Span((0,) * context, start, memory, LONGEST_CHUNK, 1) for memory in memories]
    with torch.inference_mode():
        with Meter() as wide:
            found = made.rig.target.forward(spans, store)
        with Meter() as taken:
            made.rig.drafter.ingest(memories, [start] * batch, found.features, store)
    begins = "tapped features", "activations", "page tables"
    features, plan, tables = (planned(made, batch, context, name) for name in begins)
    assert features == sum(x.numel() * x.itemsize for x in found.features)
    assert features + plan + tables == pytest.approx(wide.peak, rel=0.01)
    assert features + taken.peak <= features + plan


@pytest.mark.parametrize(("batch", "context"), [(15, 4096), (1, 40_960)])
def test_a_round_in_a_graph_holds_no_more_than_the_plan_says(made: Made, batch: int, context: int) -> None:
    splits.owned(NOWHERE)
    store, memories = seated(made.rig, batch, context, context - 1)
    seats = [Seat(memory, 1, made.rig.drafter.draft_length) for memory in memories]
    turn = Turn(made.rig.target, made.rig.drafter, store)
    frame = turn.frame(seats)
    assert frame is not None
    sides = turn.sides(seats, frame)
    there = parted(joined(sides).to(NOWHERE), sides)
    with torch.inference_mode(), Meter() as meter:
        turn.body(frame, Way.SELECTOR, Rule.NONE, there)
    plan = planned(made, batch, context, "captured graphs: a round")
    assert meter.peak <= plan <= 1.25 * meter.peak


def test_parts_never_need_more_than_a_workspace(made: Made) -> None:
    splits.owned(NOWHERE)
    for batch, context in ((15, 4096), (1, made.pair.target.max_context)):
        store, memories = seated(made.rig, batch, context, context - LONGEST_CHUNK)
        spans = [Span((0,) * context, context - LONGEST_CHUNK, memory, LONGEST_CHUNK, 1) for memory in memories]
        with torch.inference_mode():
            made.rig.target.forward(spans, store)
        assert len(splits.owned(NOWHERE).parts) == splits.FLOATS
    assert planned(made, 15, 4096, "workspaces") == 2 * 4 * splits.FLOATS


def test_every_line_of_the_plan_belongs_to_one_line_of_the_report(made: Made) -> None:
    for item in budget(made.pair, Load(15, 4096)):
        assert sum(item.name.startswith(begins) for begins in LINES.values()) == 1, item.name
