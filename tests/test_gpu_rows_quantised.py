"""Linear kernels that quantise their rows too, in Triton's interpreter, against the storage formats' definitions.

The block-scaled instruction is not run here: the interpreter decodes both operands and multiplies them.
"""

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE  # before any kernel

from specqual.decoder import quantise  # isort: skip
from specqual.decoder.gpu import fp8_rows, nvfp4_block, nvfp4_layout  # isort: skip
from specqual.reference.fp8 import quantise_fp8, through_fp8  # isort: skip
from specqual.reference.nvfp4 import dequantise, quantise_nvfp4, through_nvfp4  # isort: skip
from specqual.decoder.gpu.tiles import Tile  # isort: skip

OUTPUTS, INPUTS = 96, 160
SLACK = 2**-8 if DEVICE == "cuda" else 4e-6
"""Of FP8 times FP8: Hopper's tensor cores keep some 13 or 14 bits of a sum of 32 products."""
FP4 = DEVICE == "cpu" or torch.cuda.get_device_capability() >= (12, 0)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def hard(dtype: torch.dtype) -> Tensor:
    """Rows with blocks of zeros, of numbers too small for a scale, of numbers too large, and of ties between codes."""
    x = draw(5, INPUTS)
    x[0, :16], x[1, 16:32], x[2, 32:48] = 0.0, 1e-9, 1e6
    x[3, :16] = torch.tensor(
        [6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5.0, 0.1]
    )
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_become_nvfp4_as_defined(dtype: torch.dtype) -> None:
    x, scale = hard(dtype), torch.tensor([1 / 256], device=DEVICE)  # a power of two: products are exact
    expected = through_nvfp4(x.float(), scale[0], divide=False)
    for run in (nvfp4_block.quantise, nvfp4_block.quantise_torch):
        codes, scales = run(x, scale)
        assert torch.equal(nvfp4_block.decoded(codes, scales, torch.float32) * scale, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_become_fp8_as_defined(dtype: torch.dtype) -> None:
    x, scale = hard(dtype), torch.tensor([0.003], device=DEVICE)
    for run in (fp8_rows.quantise, fp8_rows.quantise_torch):
        codes, scales = run(x, scale)
        assert torch.equal(codes.float() * scales[:, None], through_fp8(x.float(), scale[0]))
        codes, scales = run(x)
        for row, own in zip(x.float(), codes.float() * scales[:, None], strict=True):
            assert torch.equal(own, through_fp8(row, row.abs().max() / row.new_tensor(448)))


def test_rows_of_zeros_stay_zero_and_what_is_not_a_number_stays_so_alone() -> None:
    x = draw(3, INPUTS).bfloat16()
    x[0], x[1, 5] = 0.0, float("nan")
    for scale in (torch.tensor([0.01], device=DEVICE), None):
        for quantise_rows in (fp8_rows.quantise, fp8_rows.quantise_torch):
            codes, scales = quantise_rows(x, scale)
            read = codes.float() * scales[:, None]
            assert not read[0].any() and read[1, 5].isnan() and not read[2].isnan().any()
    for quantise_blocks in (nvfp4_block.quantise, nvfp4_block.quantise_torch):
        read = nvfp4_block.decoded(*quantise_blocks(x, torch.tensor([0.01], device=DEVICE)), torch.float32)
        assert not read[0].any() and read[1, :16].isnan().all() and not read[1, 16:].isnan().any()


def test_every_e4m3_number_and_the_middle_of_every_two_round_as_torch_rounds_them() -> None:
    known = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    x = torch.cat([known, (known[1:] + known[:-1]) / 2])
    x = torch.cat([x, -x, x * 1.0001])[None].to(DEVICE)
    found = fp8_rows.quantise(x, torch.ones(1, device=DEVICE)).codes
    assert torch.equal(found.view(torch.uint8), x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))


@pytest.mark.skipif(not FP4, reason="the block-scaled FP4 instruction needs compute capability 12.0")
def test_both_operands_in_nvfp4_multiply_as_defined() -> None:
    weight, input_scale = quantise_nvfp4(draw(OUTPUTS, INPUTS)), torch.tensor([0.002], device=DEVICE)
    outer = weight["weight_scale_2"].expand(OUTPUTS) * input_scale
    held = nvfp4_block.Blocked(weight["weight"], weight["weight_scale"], outer, input_scale)
    x = draw(70, INPUTS, seed=1).bfloat16()
    exact = through_nvfp4(x.double(), input_scale[0].double(), divide=False)
    exact = exact @ dequantise(*weight.values(), torch.float64, divide=False).T
    rows = nvfp4_block.quantise(x, input_scale)
    for run in (nvfp4_block.linear, nvfp4_block.linear_torch):
        found = run(rows, held, dtype=torch.float32)
        assert float((found.double() - exact).abs().max() / exact.abs().max()) < 4e-6
    few = nvfp4_block.Rows(rows.codes[:3], rows.scales[:3])
    assert torch.equal(nvfp4_block.linear(few, held), nvfp4_block.linear(rows, held)[:3])


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("static", [True, False])
def test_both_operands_in_fp8_multiply_as_defined(static: bool, splits: int) -> None:
    codes, scale = quantise_fp8(draw(OUTPUTS, INPUTS))
    x, bias = draw(17, INPUTS, seed=1).bfloat16(), draw(OUTPUTS, seed=2)
    rows = fp8_rows.quantise(x, torch.tensor([0.01], device=DEVICE) if static else None)
    exact = (rows.codes.double() * rows.scales.double()[:, None]) @ (codes.double() * scale.double()).T + bias.double()
    tile = Tile(64, splits, (4, 4, 4, 4), (2, 2, 2, 2))
    for run in (fp8_rows.linear, fp8_rows.linear_torch):
        found = run(rows, codes, scale.expand(OUTPUTS).contiguous(), bias, dtype=torch.float32, tile=tile)
        assert float((found.double() - exact).abs().max() / exact.abs().max()) < SLACK


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="x: rows must be a multiple of 16 long, got 24"):
        nvfp4_block.quantise(draw(2, 24), torch.ones(1, device=DEVICE))


def test_a_weight_quantised_at_load_is_what_the_writer_of_checkpoints_makes_of_it() -> None:
    weight = draw(OUTPUTS, INPUTS).bfloat16()
    weight[0, :16], weight[1, 16:32] = 0.0, 1e-9
    weight[2, :16] = torch.tensor(
        [6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5.0, 0]
    )
    for given in (weight, torch.zeros_like(weight)):
        expected = quantise_nvfp4(given)
        for mine, theirs in zip(quantise.to_nvfp4(given).values(), expected.values(), strict=True):
            assert mine.dtype == theirs.dtype and torch.equal(mine.float(), theirs.float())
        exact = dequantise(*expected.values(), torch.float64, divide=False)
        layout = nvfp4_layout.lay(*quantise.to_nvfp4(given).values())
        assert float((nvfp4_layout.unlaid(layout).double() - exact).abs().max()) < 1e-6
    with pytest.raises(ValueError, match="weight: the input axis must be a multiple of 16, got 24"):
        quantise.to_nvfp4(draw(2, 24))
