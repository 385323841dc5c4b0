"""A scheduler is asked for the sizes that it takes: one with coarse chunks, or with none, is judged like any other."""

from typing import Any

import pytest

from specqual.conformance import check
from specqual.conformance.lab import Run
from specqual.conformance.sizes import Sizes
from specqual.contract import Decoder, Setup
from specqual.decoder import Engine, make
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
