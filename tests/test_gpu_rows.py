"""Norms, gates and the embedding of the GPU decoder in Triton's interpreter, against float64."""

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE  # before any kernel

from specqual.decoder.gpu import embedding, gated, norm  # isort: skip

DTYPES = {torch.float32: 3e-6, torch.bfloat16: 2**-8}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def close(found: Tensor, exact: Tensor, slack: float) -> None:
    assert found.shape == exact.shape
    assert float((found.double() - exact).abs().sub(exact.abs() * slack).max()) <= 3e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_is_its_definition_in_float64_and_hands_on_the_sum(dtype: torch.dtype) -> None:
    x, add, gain = draw(5, 72).to(dtype), draw(5, 72, seed=1).to(dtype), draw(72, seed=2)
    for run in (norm.rms_norm, norm.rms_norm_torch):
        alone, itself = run(x, gain, 1e-6)
        assert itself is x
        close(alone, norm.rms_norm_torch(x.double(), gain, 1e-6)[0], DTYPES[dtype])
        both, total = run(x, gain, 1e-6, add)
        assert torch.equal(total, (x.double() + add.double()).to(dtype))
        close(both, norm.rms_norm_torch(total.double(), gain, 1e-6)[0], DTYPES[dtype])


def test_a_norm_reads_rows_out_of_wider_ones_and_writes_where_it_is_told_to() -> None:
    x, gain, out = draw(3, 100), draw(64, seed=2), torch.zeros(3, 64, device=DEVICE)
    assert norm.rms_norm(x[:, :64], gain, 1e-6, out=out)[0] is out
    close(out, norm.rms_norm_torch(x[:, :64].double(), gain, 1e-6)[0], 3e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gates_are_their_definition_in_float64(dtype: torch.dtype) -> None:
    x = draw(3, 80).to(dtype) * 4
    gate, up = x.double().chunk(2, dim=1)
    for run in (gated.silu_mul, gated.silu_mul_torch):
        close(run(x), gate * gate.sigmoid() * up, DTYPES[dtype])
    for run in (gated.sigmoid_mul, gated.sigmoid_mul_torch):
        close(run(x[:, :40], x[:, 40:]), gate * up.sigmoid(), DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_embedding_gives_the_very_rows(dtype: torch.dtype) -> None:
    table, ids = draw(11, 40).to(dtype), torch.tensor([10, 0, 3, 3], dtype=torch.int32, device=DEVICE)
    assert torch.equal(embedding.embed(ids, table), table[ids.long()])
    assert torch.equal(embedding.embed(ids, table, 2.5), embedding.embed_torch(ids, table, 2.5))


def test_no_rows_are_no_launch() -> None:
    nothing = draw(0, 32)
    assert norm.rms_norm(nothing, draw(32), 1e-6)[0].shape == (0, 32)
    assert gated.silu_mul(nothing).shape == (0, 16)
