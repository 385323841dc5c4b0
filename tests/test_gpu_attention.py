"""Paged attention, in Triton's interpreter where there is no GPU: exact, and blind to spans, batches and neighbours."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from . import ptx
from .interpreter import DEVICE, ints  # isort: split

from specqual.decoder.gpu import attention as module
from specqual.decoder.gpu import codes, pieces
from specqual.decoder.gpu.attention import attention, attention_torch
from specqual.decoder.gpu.attention_backends import BACK_ENDS
from specqual.decoder.gpu.spans import Spans
from specqual.decoder.gpu.splits import Workspace
from specqual.decoder.view import PAGE

HEADS, KV_HEADS, DIM = 6, 2, 16


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pieces, so that there are several."""
    monkeypatch.setattr(module, "cut_of", lambda *_: pieces.Cut(32, 16, 2, 4, 2))


def test_codes_become_numbers_exactly() -> None:
    for first in range(0, 256, 4):
        word = sum((first + i) << (8 * i) for i in range(4))
        halves = [half for pair in ptx.run(codes.ASSEMBLY, 2, [word]) for half in (pair & 0xFFFF, pair >> 16)]
        found = torch.tensor(halves, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).double()
        exact = torch.arange(first, first + 4, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
        exact = torch.where(exact.isnan(), found.sign() * 480.0, exact)
        assert torch.equal(found, exact) and torch.equal(found.signbit(), exact.signbit())


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sample has cached, and the rows of its span, which begins at `start`."""

    start: int
    rows: int
    seed: int = 0
    shift: int = 0  # of the pages that it owns


def asked(samples: list[Sample], dtype: torch.dtype, cached: torch.dtype, **options: object) -> dict[str, object]:
    """Arguments of one call; what nobody may read is not a number."""
    width, own = 8, "own" in options
    cache = torch.full((1 + len(samples) * width, 2 * KV_HEADS * PAGE * DIM + 32), torch.nan).to(cached)
    table, sides, queries, firsts = torch.zeros(len(samples), width, dtype=torch.int32), [], [], [0]
    for number, sample in enumerate(samples):
        end = sample.start + sample.rows * (not own)
        positions = torch.arange(end)
        pages = 1 + (number * width + positions // PAGE + sample.shift) % (len(cache) - 1)
        table[number, positions // PAGE] = pages.int()
        rows = noise(sample.seed, 2, KV_HEADS, 128, DIM)[:, :, :end].to(cached)
        view = cache[:, : 2 * KV_HEADS * PAGE * DIM].view(-1, 2, KV_HEADS, PAGE, DIM)
        view[pages, :, :, positions % PAGE] = rows.permute(2, 0, 1, 3)
        queries.append(noise(sample.seed + 1, 128, HEADS, DIM)[sample.start :][: sample.rows])
        sides.append(noise(sample.seed + 2, 2, 128, KV_HEADS, DIM)[:, sample.start :][:, : sample.rows])
        firsts.append(firsts[-1] + sample.rows)
    query = torch.cat(queries).to(dtype).to(DEVICE)
    if own:
        options = options | {"own": tuple(torch.cat(sides, 1).to(dtype).to(DEVICE).unbind(0))}
    if "gate" in options:
        options = options | {"gate": query.flatten(1)}
    spans = Spans(ints(*firsts), ints(*(sample.start for sample in samples)))
    common = {"query": query, "cache": cache.to(DEVICE), "table": table.to(DEVICE), "spans": spans}
    return common | {"kv_heads": KV_HEADS, "most": max(s.rows for s in samples)} | options


CASES = {
    "window": (torch.float32, torch.float32, {"window": 20}),
    "own block": (torch.float32, torch.float32, {"causal": False, "own": True}),
    "own block with a window": (torch.bfloat16, torch.bfloat16, {"causal": False, "own": True, "window": 24}),
    "codes": (torch.bfloat16, torch.float8_e4m3fn, {"scales": (0.5, 0.25), "gate": True}),
}
SAMPLES = [Sample(37, 3), Sample(0, 0), Sample(0, 5, 3), Sample(70, 1, 6, 2)]


@pytest.mark.parametrize("back_end", ["own", "sdpa"])
@pytest.mark.parametrize("name", CASES)
def test_a_back_end_is_exact(name: str, back_end: str) -> None:
    dtype, cached, options = CASES[name]
    call = asked(SAMPLES, dtype, cached, **options)
    expected = attention_torch(**call).double()  # type: ignore[arg-type]
    near = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(BACK_ENDS[back_end](**call).double(), expected, rtol=near, atol=near)


@pytest.mark.parametrize("name", ["window", "codes"])
def test_bits_know_nothing_of_span_and_batch(name: str) -> None:
    dtype, cached, options = CASES[name]
    whole = Sample(33, 5, 3)
    (first, *_), found = [0], attention(**asked([whole], dtype, cached, **options))  # type: ignore[arg-type]
    for rows in (1, 4):
        part = replace(whole, start=whole.start + first, rows=rows, shift=rows)
        batch = asked([Sample(5, 2, 9), part, Sample(64, 1)], dtype, cached, **options)
        said = attention(**batch)[2 : 2 + rows]  # type: ignore[arg-type]
        assert torch.equal(said, found[first : first + rows])
        first += rows


@pytest.mark.parametrize("name", ["window", "own block with a window", "codes"])
def test_rows_whose_parts_a_workspace_does_not_hold_go_block_by_block_to_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype, cached, options = CASES[name]
    call = asked(SAMPLES, dtype, cached, **options)
    whole = attention(**call)  # type: ignore[arg-type]
    for rows in (2, 5):
        numbers = pieces.numbers_of(rows, HEADS, DIM, pieces.pieces_of(8, module.cut_of(), "own" in options))
        room = torch.full((numbers + 64,), torch.nan, device=DEVICE)
        monkeypatch.setattr(pieces, "FLOATS", numbers)
        found = attention(**call, workspace=Workspace(room, ints(0)))  # type: ignore[arg-type]
        assert torch.equal(found, whole)
        assert room[numbers:].isnan().all() and not room[:numbers].isnan().all()
