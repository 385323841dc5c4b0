"""Choosing among logits, in Triton's interpreter where there is no GPU: the best ids, the selector's walk."""

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE  # isort: split

from specqual.decoder.gpu import top as module
from specqual.decoder.gpu.selector import Candidates, select, select_torch
from specqual.decoder.gpu.top import argmax, argmax_torch, top, top_torch


def rows(width: int) -> Tensor:
    """Logits with many equal ones, and with what is no number."""
    draw = torch.Generator().manual_seed(width)
    x = torch.randint(-40, 40, (4, width), generator=draw).float() / 8
    x[1] = torch.randn(width, generator=draw) * 10
    x[2] = -torch.inf
    x[2, width // 2] = torch.nan
    x[3, 4], x[3, 5], x[3, 7] = torch.finfo(torch.float32).max, torch.inf, torch.nan
    x[3, 11], x[3, 13] = -0.0, torch.inf
    x[0, :20] = torch.tensor([0.0, -0.0]).repeat(10)
    return x.to(DEVICE)


@pytest.mark.parametrize(("width", "count"), [(24, 16), (500, 5), (3000, 4), (500, 1)])
def test_the_best_ids_of_each_row_are_found_and_equal_ones_go_by_lowest_id(
    width: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in (("GROUP", 8), ("COLUMNS", 16), ("STEP", 4)):
        monkeypatch.setattr(module, name, small)
    logits = rows(width)
    found, expected = top(logits, count), top_torch(logits, count)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1].nan_to_num(), expected[1].nan_to_num())
    assert torch.equal(argmax(logits), argmax_torch(logits))


BLOCKS, SLOTS, COUNT, RANK, VOCABULARY = 3, 3, 5, 12, 40


def asked(seed: int) -> tuple[Tensor, Candidates, Tensor, tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.rand(BLOCKS, SLOTS, VOCABULARY, generator=draw).topk(COUNT).indices.sort(-1).values.int()
    logits, joint = torch.randn(BLOCKS, SLOTS, COUNT, generator=draw), torch.randn(BLOCKS, SLOTS, RANK, generator=draw)
    before, after = (torch.randn(VOCABULARY, RANK, generator=draw).to(torch.bfloat16).to(DEVICE) for _ in range(2))
    anchors = torch.randint(VOCABULARY, (BLOCKS,), generator=draw, dtype=torch.int32)
    candidates = Candidates(ids.to(DEVICE), logits.to(DEVICE))
    return anchors.to(DEVICE), candidates, joint.to(DEVICE), (before, after)


def test_a_walk_is_told_what_was_chosen_and_draws_from_the_law_that_it_hands_on() -> None:
    anchors, candidates, joint, codes = asked(1)
    temperature = torch.tensor([0.0, 0.7, 1.5], device=DEVICE)
    uniform = torch.rand(BLOCKS, SLOTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(DEVICE)
    uniform[1, 0], uniform[2, 0] = 0.0, 1 - 2**-53
    for sides in ((joint, codes), (None, None)):
        found, expected = (step(anchors, candidates, *sides, temperature, uniform) for step in (select, select_torch))
        assert torch.equal(found.tokens, expected.tokens)
        torch.testing.assert_close(found.q, expected.q, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(found.q.sum(-1), torch.ones_like(found.q[..., 0]), rtol=0, atol=1e-14)
        joined = None if sides[0] is None else sides[0][1:2]
        part = Candidates(*(side[1:2] for side in candidates))
        alone = select(anchors[1:2], part, joined, sides[1], temperature[1:2], uniform[1:2])
        assert torch.equal(alone.q[0], found.q[1]) and torch.equal(alone.tokens[0], found.tokens[1])


def test_equal_scores_go_by_lowest_id() -> None:
    anchors, candidates, _, _ = asked(3)
    flat = Candidates(candidates.ids, torch.zeros_like(candidates.logits))
    cold, unused = torch.zeros(BLOCKS, device=DEVICE), torch.zeros(BLOCKS, SLOTS, dtype=torch.float64, device=DEVICE)
    found = select(anchors, flat, None, None, cold, unused)
    assert torch.equal(found.tokens, candidates.ids[..., 0])


def test_a_greedy_walk_never_takes_what_is_no_number() -> None:
    anchors, candidates, _, _ = asked(3)
    candidates.logits[0, 0, candidates.logits[0, 0].argmax()] = candidates.logits[1, 1, 0] = torch.nan
    candidates.logits[2, 2] = torch.nan  # none of them is one: the first
    cold, unused = torch.zeros(BLOCKS, device=DEVICE), torch.zeros(BLOCKS, SLOTS, dtype=torch.float64, device=DEVICE)
    found, expected = (step(anchors, candidates, None, None, cold, unused) for step in (select, select_torch))
    assert torch.equal(found.tokens, expected.tokens) and torch.equal(found.q, expected.q)
    assert found.tokens[2, 2] == candidates.ids[2, 2, 0]


def test_a_number_at_the_edge_of_two_candidates_draws_the_second() -> None:
    anchors, candidates, _, _ = asked(3)
    flat = Candidates(candidates.ids[..., :4].contiguous(), torch.zeros_like(candidates.logits[..., :4]).contiguous())
    warm, edge = (
        torch.ones(BLOCKS, device=DEVICE),
        torch.full((BLOCKS, SLOTS), 0.25, dtype=torch.float64, device=DEVICE),
    )
    assert torch.equal(select(anchors, flat, None, None, warm, edge).tokens, candidates.ids[..., 1])
