"""Laws and verdicts on the device, in Triton's interpreter where there is no GPU, beside those of the host."""

import numpy as np
import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE, ints  # isort: split

from specqual.contract import Sampling
from specqual.decoder import sampling
from specqual.decoder.gpu import law as module
from specqual.decoder.gpu import verdict
from specqual.decoder.gpu.law import Filters, law, law_torch, probabilities
from specqual.decoder.gpu.verdict import Drafted, Uniforms, draw, draw_torch, judge, judge_torch, matched, matched_torch

WIDTH = 60
SETTINGS = [
    Sampling(temperature=0.7),
    Sampling(),
    Sampling(temperature=1.3, top_k=7),
    Sampling(temperature=0.9, top_p=0.6),
    Sampling(temperature=1.0, top_k=20, top_p=0.8, min_p=0.05),
    Sampling(temperature=2.0, min_p=0.3),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=1.0, top_p=1e-9),
    Sampling(temperature=1.5, top_p=0.95),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short blocks, so that a row has several."""
    for place in (module, verdict):
        monkeypatch.setattr(place, "BLOCK", 32)


def filters(settings: list[Sampling]) -> Filters:
    columns = zip(*((s.temperature, s.top_k, s.top_p, s.min_p) for s in settings), strict=True)
    kinds = (torch.float64, torch.int32, torch.float64, torch.float64)
    return Filters(*(torch.tensor(side, dtype=kind, device=DEVICE) for side, kind in zip(columns, kinds, strict=True)))


def rows(kind: str, count: int) -> Tensor:
    draw = torch.Generator().manual_seed(len(kind))
    x = torch.randn(count, WIDTH, generator=draw) * 3
    if kind == "ties":
        x = x.round()
    if kind == "no numbers":
        x[:, 3], x[:, 10:40], x[1:3] = torch.nan, -torch.inf, -torch.inf
        x[4:6, 50], x[4:6, 55] = torch.inf, torch.inf
        x[5:7, 45] = torch.finfo(torch.float32).max
    return x.to(DEVICE)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["ties", "no numbers"])
def test_laws_are_those_of_the_contract(kind: str) -> None:
    logits = rows(kind, len(SETTINGS))
    found = law(logits, filters(SETTINGS))
    twin = law_torch(logits, filters(SETTINGS))
    torch.testing.assert_close(probabilities(logits, found), probabilities(logits, twin), rtol=1e-6, atol=0)
    for row, asked, p in zip(logits.double().cpu().numpy(), SETTINGS, probabilities(logits, found), strict=True):
        expected = sampling.law(sampling.shaped(row, asked, (), (), ()), asked)
        np.testing.assert_array_equal(p.cpu().numpy() > 0, expected > 0)
        np.testing.assert_allclose(p.cpu().numpy(), expected, rtol=1e-5, atol=1e-12)


def uniform(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(DEVICE)


SLOTS, COUNT = 3, 4
FIRST = ints(0, 4, 4, 6, 7, 11)  # of five samples, one of which has no rows, and one no drafts


def drafted(seed: int, p: Tensor, one_hot: bool) -> Drafted:
    """Drafts from candidates that are probable under p, with a q of their own."""
    draw = torch.Generator().manual_seed(seed)
    rows = FIRST[:-1, None].long() + torch.arange(SLOTS, device=DEVICE)
    ids = p[rows.clamp(max=len(p) - 1)].topk(1 if one_hot else COUNT).indices.sort(-1).values.int()
    q = torch.rand(*ids.shape, generator=draw, dtype=torch.float64).to(DEVICE)
    place = torch.randint(ids.shape[2], ids.shape[:2], generator=draw)[..., None].to(DEVICE)
    return Drafted(ids.gather(2, place)[..., 0], ids, q / q.sum(-1, keepdim=True))


@pytest.mark.parametrize("one_hot", [False, True])
def test_verdicts_are_those_of_the_host(one_hot: bool) -> None:
    settings = [Sampling(temperature=1.0, top_k=8), Sampling(), Sampling(temperature=1.0, top_p=0.9)]
    settings = [settings[i % 3] for i in range(4)] + [Sampling(temperature=0.8)] * 7
    logits = rows("ties", len(settings))
    p, accepted = law_torch(logits, filters(settings)), set()
    samples = len(FIRST) - 1
    for seed in range(4):
        chain = drafted(seed, probabilities(logits, p), one_hot)
        numbers = (uniform(seed + i, samples, SLOTS + (i == 3)) for i in (1, 2, 3))
        asked = logits, FIRST, p, chain, Uniforms(*numbers)
        found, expected = judge(*asked), judge_torch(*asked)
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.equal(mine[[0, 2, 3, 4]], theirs[[0, 2, 3, 4]])
        accepted |= set(found.accepted[[0, 4]].tolist())
    assert len(accepted) > 1


def test_what_is_chosen_anyway_is_accepted() -> None:
    logits = rows("ties", 7)
    p, numbers = law_torch(logits, filters(SETTINGS[:7])), uniform(5, 7)
    numbers[:2] = torch.tensor([0.0, 1 - 2**-53])
    chosen = draw(logits, p, numbers)
    assert torch.equal(chosen, draw_torch(logits, p, numbers))
    tokens = torch.stack([chosen[:3], chosen[:3], chosen[3:6]])
    tokens[1, 1] += 1
    for first in (ints(0, 4, 4, 7), ints(0, 0, 4, 7), ints(0, 3, 6, 7)):
        found, expected = matched(chosen, first, tokens), matched_torch(chosen, first, tokens)
        there = first.diff() > 0
        assert all(torch.equal(a[there], b[there]) for a, b in zip(found, expected, strict=True))


def test_a_certain_q_that_is_rejected_leaves_the_others_and_an_impossible_rest_is_p_itself() -> None:
    logits = torch.full((2, WIDTH), -torch.inf, device=DEVICE)
    logits[:, [3, 50]] = torch.tensor([0.0, 0.0], device=DEVICE)
    p = law(logits, filters([Sampling(temperature=1.0)] * 2))
    sides = ((1, 0.5), (1, 0.999), (2, 0.999))  # u q(d) = p(d) rejects
    numbers = Uniforms(*(torch.full((1, n), u, dtype=torch.float64, device=DEVICE) for n, u in sides))
    for token, q, expected in ((3, [[1.0, 0.0]], 50), (50, [[0.0, 1.0]], 3), (3, [[1.0, 1.0]], 50)):
        ids = torch.tensor([[[3, 50]]], dtype=torch.int32, device=DEVICE)
        law_of = torch.tensor([q], dtype=torch.float64, device=DEVICE)
        chain = Drafted(torch.tensor([[token]], dtype=torch.int32, device=DEVICE), ids, law_of)
        found = judge(logits, ints(0, 2), p, chain, numbers)
        assert (found.accepted.item(), found.token.item()) == (0, expected)
