"""Laws and verdicts on the device, in Triton's interpreter where there is no GPU, beside those of the host."""

import numpy as np
import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE  # isort: split

from specqual.contract import Sampling
from specqual.decoder import sampling
from specqual.decoder.gpu import law as module
from specqual.decoder.gpu.law import Filters, law, law_torch, probabilities

WIDTH = 90
SETTINGS = [
    Sampling(temperature=0.7),
    Sampling(),
    Sampling(temperature=1.3, top_k=7),
    Sampling(temperature=0.9, top_p=0.6),
    Sampling(temperature=1.0, top_k=20, top_p=0.8, min_p=0.05),
    Sampling(temperature=2.0, min_p=0.3),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=1.0, top_p=1e-9),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short blocks, so that a row has several."""
    monkeypatch.setattr(module, "BLOCK", 32)


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
        x[:, 3], x[:, 10:60], x[1:3] = torch.nan, -torch.inf, -torch.inf
        x[4:6, 70], x[4:6, 75] = torch.inf, torch.inf
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
