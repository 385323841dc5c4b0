"""Small kernels over rows, in Triton's interpreter where there is no GPU: norms and turns of heads, gates, blocks."""

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE, ints  # isort: split

from specqual.decoder.arithmetic import Turns
from specqual.decoder.formats import to_e4m3
from specqual.decoder.gpu.block_convolution import block_convolution, block_convolution_torch
from specqual.decoder.gpu.gated_norm import gated_norm, gated_norm_torch
from specqual.decoder.gpu.heads import Place, heads, heads_torch
from specqual.decoder.gpu.spans import Spans

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
NEAR = {torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float8_e4m3fn: 2**-3}


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Up to one rounding."""
    torch.testing.assert_close(found.double(), expected.double(), rtol=NEAR[dtype], atol=1e-6, equal_nan=True)


@DTYPES
def test_a_gated_norm_is_exact_and_blind_to_other_rows(dtype: torch.dtype) -> None:
    x, z, weight = noise(1, 3, 9, 16), noise(2, 3, 200)[:, :144].to(dtype), noise(3, 16)
    found = gated_norm(x, z, weight, 1e-6, dtype)
    close(found, gated_norm_torch(x, z, weight.double(), 1e-6, dtype), dtype)
    assert torch.equal(gated_norm(x[1:], z[1:], weight, 1e-6, dtype), found[1:])


@pytest.mark.parametrize(("dtype", "added"), [(torch.float32, False), (torch.bfloat16, True)])
def test_blocks_are_convolved_alone(dtype: torch.dtype, added: bool) -> None:
    width, groups, taps = 32, 4, 3
    z, dynamic, base = noise(1, 6, width).to(dtype), noise(2, 6, 2, taps, groups).to(dtype)[:, 1], noise(3, taps, width)
    residual = noise(4, 6, width).to(dtype) if added else None
    found = block_convolution(z, dynamic, base, ints(0, 4, 4, 6), most=4, residual=residual)
    close(found, block_convolution_torch(z, dynamic, base, ints(0, 4, 4, 6), most=4, residual=residual), dtype)
    last = None if residual is None else residual[4:]
    assert torch.equal(block_convolution(z[4:], dynamic[4:], base, ints(0, 2), most=2, residual=last), found[4:])


HEADS, KV_HEADS, DIM, HALF = 3, 2, 16, 4
SPANS = Spans(ints(0, 2, 2, 5), ints(15, 0, 3))  # the first one crosses a page


@pytest.mark.parametrize(
    ("cached", "normed"), [(None, True), (torch.float32, False), (torch.bfloat16, True), (torch.float8_e4m3fn, True)]
)
def test_heads_are_normed_turned_and_written_where_they_belong(cached: torch.dtype | None, normed: bool) -> None:
    dtype = torch.bfloat16 if cached is None else torch.float32
    rows, angles = noise(1, 5, (HEADS + 2 * KV_HEADS) * DIM + 3).to(dtype), noise(2, 32, HALF)
    query, key, value = rows[:, :-3].split([HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM], dim=1)
    gains = (noise(3, DIM), noise(4, DIM)) if normed else None
    caches = [torch.full((5, 2 * KV_HEADS * 16 * DIM + 32), torch.nan, device=DEVICE) for _ in range(2)]
    results = []
    for step, cache in zip((heads, heads_torch), caches, strict=True):
        place = None
        if cached is not None:
            cache.data = cache.to(cached)
            place = Place(cache, torch.stack([ints(4, 1), ints(0, 0), ints(2, 3)]), (0.01, 0.5))
        turns = Turns(angles.cos(), angles.sin())
        results.append(step(query, key, value, gains, turns, 1e-6, SPANS, most=3, depth=DIM, place=place))
    for found, expected in zip(*results, strict=True):
        close(found, expected, dtype)
    if cached is not None:
        close(caches[0], caches[1], cached)
        assert caches[0].double().isnan().sum() == caches[0].numel() - 5 * 2 * KV_HEADS * DIM


@pytest.mark.parametrize("scale", [0.013, 0.5, 3.7])
def test_values_become_the_very_codes_of_the_host(scale: float) -> None:
    rows = 64
    value = (noise(5, rows, KV_HEADS * DIM) * 40 * scale).bfloat16()
    cache = torch.zeros(1 + rows // 16, 2 * KV_HEADS * 16 * DIM, dtype=torch.float8_e4m3fn, device=DEVICE)
    angles = torch.zeros(rows, HALF, device=DEVICE)
    place = Place(cache, ints(*range(1, 1 + rows // 16))[None], (1.0, scale))
    spans, turns = Spans(ints(0, rows), ints(0)), Turns(angles.cos(), angles.sin())
    heads(None, value, value, None, turns, 1e-6, spans, most=rows, depth=DIM, place=place)
    found = cache[1:].view(torch.uint8).view(-1, 2, KV_HEADS, 16, DIM)[:, 1].transpose(1, 2).reshape(rows, -1)
    assert torch.equal(found.cpu(), to_e4m3(value.cpu(), scale))
