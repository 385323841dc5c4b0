"""The delta-net span kernel, in Triton's interpreter where there is no GPU: exact, and blind to how spans are cut."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE, ints  # isort: split

from specqual.decoder.gpu.recurrence import Consumed, recurrence, recurrence_torch
from specqual.decoder.gpu.spans import Ledger, Log, Spans

KEY_HEADS, VALUE_HEADS, DIM, RING, SLOTS = 1, 2, 16, 8, 4


@dataclass(frozen=True, slots=True)
class Pools:
    state: Tensor
    log: Log

    @classmethod
    def of(cls, dtype: torch.dtype, exact: torch.dtype) -> "Pools":
        """Pools whose every place holds what must never be read."""
        shapes = (KEY_HEADS, DIM), (VALUE_HEADS, DIM), (2, VALUE_HEADS)
        sides = [torch.full((SLOTS, RING, *shape), torch.nan, device=DEVICE) for shape in shapes]
        state = torch.full((SLOTS, VALUE_HEADS, DIM, DIM), torch.nan, dtype=exact, device=DEVICE)
        return cls(state, Log(sides[0], sides[0].to(dtype), sides[1].to(dtype), sides[2]))


def tokens(count: int, seed: int, dtype: torch.dtype) -> Consumed:
    draw = torch.Generator().manual_seed(seed)

    def unit(heads: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn(count, heads, DIM, generator=draw), dim=-1)

    gates = torch.rand(count, 2, VALUE_HEADS, generator=draw) * torch.tensor([0.2, 1.0])[:, None]
    gates[:, 0] += 0.8
    value = torch.randn(count, VALUE_HEADS, DIM, generator=draw)
    sides = (unit(KEY_HEADS) * DIM**-0.5, unit(KEY_HEADS), value)
    return Consumed(*(side.to(dtype).to(DEVICE) for side in sides), gates.to(DEVICE))


def run(step, rounds: Sequence[tuple[int, int, int]], stream: Consumed, wrong: Consumed, pools: Pools) -> Tensor:
    """Outputs of all tokens that stay, when rounds are of so many (certain tokens, accepted ones, rejected ones)."""
    said, start, boundary = list[Tensor](), 0, 0
    for number, (certain, accepted, rejected) in enumerate(rounds):
        stay, rows = certain + accepted, certain + accepted + rejected
        new = Consumed(
            *(torch.cat([a[start : start + stay], b[:rejected]]) for a, b in zip(stream, wrong, strict=True))
        )
        slots, other = [1, 3], tokens(1, number, stream.key.dtype)  # a neighbour that always begins anew
        spans = Spans(ints(0, rows, rows, rows + 1), ints(start, 0, 0))
        ledger = Ledger(ints(slots[0], 0, slots[1]), ints(boundary, 0, 0), ints(certain, 0, number % 2))
        both = Consumed(*(torch.cat([a, b]) for a, b in zip(new, other, strict=True)))
        said.append(step(pools.state, spans, ledger, pools.log, both)[:stay])
        for row in range(certain, rows):
            for kept, side in zip(pools.log[1:], new[1:], strict=True):
                kept[slots[0], (start + row) % RING] = side[row]
        boundary = start + certain
        start += stay
    return torch.cat(said)


CUTS = {
    "token by token": [(0, 1, 0)] * 7,
    "all certain": [(7, 0, 0)],
    "drafts": [(2, 1, 2), (0, 1, 2), (0, 3, 0)],
    "certain anchors": [(1, 2, 1), (1, 0, 3), (1, 2, 0)],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_kernel_is_exact_and_bits_do_not_know_where_spans_are_cut(dtype: torch.dtype) -> None:
    stream, wrong = tokens(7, 7, dtype), tokens(4, 8, dtype)
    exact = run(recurrence_torch, CUTS["all certain"], stream, wrong, Pools.of(dtype, torch.float64))
    found = {name: run(recurrence, cut, stream, wrong, Pools.of(dtype, torch.float32)) for name, cut in CUTS.items()}
    torch.testing.assert_close(found["all certain"].double(), exact, rtol=0, atol=1e-5)
    for name, said in found.items():
        assert torch.equal(said, found["all certain"]), name


def test_states_stand_at_the_boundary_and_nothing_else_is_written() -> None:
    stream, wrong = tokens(7, 3, torch.float32), tokens(4, 4, torch.float32)
    pools, exact = Pools.of(torch.float32, torch.float32), Pools.of(torch.float32, torch.float64)
    run(recurrence, [(2, 2, 2), (1, 0, 3), (0, 2, 0)], stream, wrong, pools)
    run(recurrence_torch, [(5, 0, 0)], stream, wrong, exact)  # behind two certain, two accepted and one more
    torch.testing.assert_close(pools.state[1].double(), exact.state[1], rtol=0, atol=1e-5)
    assert pools.state[[0, 2]].isnan().all()
