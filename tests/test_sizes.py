"""A scheduler is asked for the sizes that it takes: one with coarse chunks, or with none, is judged like any other."""

from typing import Any

import pytest

from specqual import fixtures
from specqual.conformance import check
from specqual.conformance.lab import Run
from specqual.conformance.sizes import Sizes
from specqual.contract import Decoder, Setup
from specqual.decoder import Engine, make
from specqual.mutants.levels import Level, seen_at
from specqual.mutants.pairs import DFLASH2
from specqual.mutants.planting import planted

CLAUSES = ["SCH-2", "SCH-3", "CXL-2"]


def taking(*chunks: int) -> Any:
    """The optimised decoder, if it only took these chunks."""

    def schedule(self: Engine, *, chunk: int | None = None, **others: Any) -> None:
        if chunk is not None and chunk not in chunks:
            raise ValueError(f"chunk: must be one of {chunks}, got {chunk}")
        sound(self, chunk=chunk, **others)

    sound = Engine.schedule

    def factory(setup: Setup) -> Decoder:
        found: Decoder = planted(setup, {(Engine, "schedule"): schedule}, make)
        return found

    return factory


def test_a_chunk_is_the_smallest_that_is_large_enough_else_the_largest() -> None:
    sizes = Sizes((256, 1, 16, 48, 64), (0,), ())
    assert [sizes.chunk(wanted) for wanted in (16, 17, 64, 65, 300)] == [16, 48, 64, 256, 256]
    assert Sizes((), (0,), ()).chunk(16) == 16


@pytest.mark.parametrize("chunks", [(128, 256), (128,)], ids=str)
def test_an_engine_with_coarse_chunks_is_decided(chunks: tuple[int, ...]) -> None:
    found = {result.clause: result for result in check.run(Run("tests", taking(*chunks), DFLASH2.setup), CLAUSES)}
    assert {
        clause: (result.verdict, result.detail) for clause, result in found.items() if result.verdict != "EXACT"
    } == {}
    assert f"chunk {max(chunks)}" in found["CXL-2"].evidence["cases"][0]["history"]


def test_an_engine_that_takes_no_chunk_is_asked_everything_else() -> None:
    found = {result.clause: result for result in check.run(Run("tests", taking(), DFLASH2.setup), CLAUSES)}
    assert {clause: str(result.verdict) for clause, result in found.items()} == {
        "SCH-2": "EXACT",
        "SCH-3": "SKIPPED",
        "CXL-2": "EXACT",
    }


def test_whoever_schedules_nothing_takes_nothing_and_its_batches_are_judged_all_the_same():
    with_scheduler, without = make(DFLASH2.setup), seen_at(Level.L1, make)(DFLASH2.setup)
    assert Sizes.of(with_scheduler).chunks and Sizes.of(without) == Sizes((), (0,), ())
    about = Run("black box", seen_at(Level.L1, make), DFLASH2.setup)
    assert {result.verdict for result in check.run(about, ["GRF-4", "GRF-5", "GRF-7"])} == {"EXACT"}


@pytest.mark.parametrize("table", ["flat", "ties", "zeros"])
def test_a_vocabulary_of_few_tokens_and_a_target_that_makes_some_impossible_are_legal(table: str):
    setup = Setup(target=fixtures.path(f"table/{table}"), options={"ngram": "2"}, draft_length=1)
    found = {result.clause: result for result in check.run(Run("tiny", make, setup), ["GRF-2", "GRF-4", "FIN-6"])}
    assert found["GRF-2"].verdict == found["GRF-4"].verdict == "EXACT"
    assert found["FIN-6"].verdict == ("EXACT" if table == "flat" else "INCONCLUSIVE"), found["FIN-6"].detail
