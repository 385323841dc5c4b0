"""The linear kernels of the GPU decoder in Triton's interpreter, against float64 and against the storage formats."""

import random

import pytest
import torch
from torch import Tensor

from . import ptx
from .interpreter import DEVICE  # before any kernel

from specqual.contract.errors import CheckpointError  # isort: skip
from specqual.contract.quantisation import Format  # isort: skip
from specqual.decoder.gpu import dense, fp8, linear, nvfp4, nvfp4_layout, splits  # isort: skip
from specqual.conformance.definitions import decoded, stored  # isort: skip
from specqual.decoder.gpu.modules import Stored, module_of  # isort: skip
from specqual.decoder.gpu.splits import Workspace, of_size, sizes_of  # isort: skip
from specqual.decoder.gpu.tiles import WIDTHS, Tile, tile_of, width_of  # isort: skip
from specqual.reference.fp8 import dequantise_fp8, quantise_fp8  # isort: skip
from specqual.reference.nvfp4 import dequantise, quantise_nvfp4, unpack, values_of  # isort: skip

OUTPUTS, INPUTS = 96, 160  # neither a multiple of a tile
TILES = [Tile(64, 1, (4, 4, 4, 4), (2, 2, 2, 2)), Tile(128, 2, (4, 4, 4, 8), (2, 2, 2, 2))]
E4M3 = torch.tensor([byte for byte in range(256) if byte & 127 != 127], dtype=torch.uint8)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def whole(*shape: int, seed: int = 0) -> Tensor:
    """Small whole numbers: their sums are exact in any order."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, torch.bfloat16)


def close(found: Tensor, exact: Tensor, slack: float = 4e-6) -> None:
    assert found.shape == exact.shape
    assert float((found.double() - exact).abs().max() / exact.abs().max()) < slack


def laid(kind: str, weight: Tensor, *, divide: bool = False) -> tuple[object, Tensor]:
    """A weight as its kernel takes it, and what it stands for, float64."""
    if kind == "fp8":
        codes, scale = quantise_fp8(weight)
        return fp8.lay(codes, scale), dequantise_fp8(codes, scale, torch.float64)
    if kind == "nvfp4":
        codes, scale, outer = quantise_nvfp4(weight, divide=divide).values()
        exact = dequantise(codes, scale, outer.reshape(()), torch.float64, divide=divide)
        return nvfp4_layout.lay(codes, scale, outer, divide=divide), exact
    rounded = weight.to(torch.bfloat16 if kind == "dense" else torch.float32)
    return rounded, rounded.double()


MODULES = {"dense": dense, "float32": dense, "fp8": fp8, "nvfp4": nvfp4}


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("kind", MODULES)
def test_a_linear_kernel_is_its_definition_in_float64(kind: str, tile: Tile) -> None:
    weight, exact = laid(kind, draw(OUTPUTS, INPUTS))
    x = draw(17, INPUTS, seed=1).to(torch.float32 if kind == "float32" else torch.bfloat16)
    bias = draw(OUTPUTS, seed=2).to(torch.float32)
    expected = x.double() @ exact.T + bias.double()
    given = bias if kind != "dense" else bias.to(torch.bfloat16)
    expected += given.double() - bias.double()
    for run in (MODULES[kind].linear, MODULES[kind].linear_torch):
        close(run(x, weight, given, dtype=torch.float32, tile=tile), expected)
        rounded = run(x, weight, given, tile=tile)
        assert rounded.dtype == x.dtype
        close(rounded, expected, 4e-6 if kind == "float32" else 2**-8)


@pytest.mark.parametrize("kind", MODULES)
def test_a_row_does_not_depend_on_how_many_there_are_nor_on_the_width_of_a_program(kind: str) -> None:
    weight, exact = laid(kind, whole(OUTPUTS, INPUTS).float())
    x = whole(130, INPUTS, seed=1).to(torch.float32 if kind == "float32" else torch.bfloat16)
    together = MODULES[kind].linear(x, weight, dtype=torch.float32)
    close(together, x.double() @ exact.T)
    for rows in (1, 2, 7, 16, 17, 33, 65):
        assert torch.equal(MODULES[kind].linear(x[:rows], weight, dtype=torch.float32), together[:rows])
    assert torch.equal(MODULES[kind].linear(x[90:97], weight, dtype=torch.float32), together[90:97])


@pytest.mark.parametrize("kind", MODULES)
def test_rows_whose_parts_a_workspace_does_not_hold_go_block_by_block_to_the_same_bits(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, _ = laid(kind, draw(OUTPUTS, INPUTS))
    x = draw(70, INPUTS + 32, seed=1).to(torch.float32 if kind == "float32" else torch.bfloat16)[:, :INPUTS]
    for tile, rows, blocks in ((TILES[1], 17, 1), (TILES[1], 70, 2), (TILES[0], 70, 1)):
        whole = MODULES[kind].linear(x[:rows], weight, dtype=torch.float32, tile=tile)
        least = 2 * 2 * 128 * 32  # numbers that two programs leave in two splits, each 32 rows wide
        with monkeypatch.context() as patch:
            patch.setattr(splits, "FLOATS", least)
            patch.setattr(splits, "width_of", lambda _: 32)
            assert -(-rows // splits.block_of(OUTPUTS, rows, tile, 32)) == blocks
            room = Workspace(torch.full((least + 64,), torch.nan, device=DEVICE), of_size(x.device).arrived)
            found = MODULES[kind].linear(x[:rows], weight, dtype=torch.float32, tile=tile, workspace=room)
        assert torch.equal(found, whole)
        assert not room.arrived.any() and room.parts[least:].isnan().all()


@pytest.mark.parametrize("kind", MODULES)
def test_rows_may_lie_in_wider_ones_and_what_lies_beside_them_is_not_read(kind: str) -> None:
    weight, exact = laid(kind, draw(OUTPUTS, INPUTS))
    x = draw(3, INPUTS + 32).to(torch.float32 if kind == "float32" else torch.bfloat16)
    x[:, INPUTS:] = float("nan")
    out = torch.full((3, OUTPUTS), 7.0, device=DEVICE)
    assert MODULES[kind].linear(x[:, :INPUTS], weight, out=out) is out
    close(out, x[:, :INPUTS].double() @ exact.T)


@pytest.mark.parametrize("kind", MODULES)
def test_a_row_that_is_not_a_number_stays_alone(kind: str) -> None:
    weight, exact = laid(kind, draw(OUTPUTS, INPUTS))
    x = draw(3, INPUTS).to(torch.float32 if kind == "float32" else torch.bfloat16)
    x[1] = float("nan")
    found = MODULES[kind].linear(x, weight, dtype=torch.float32)
    assert found[1].isnan().all()
    close(found[::2], x[::2].double() @ exact.T)


def test_a_workspace_serves_again_and_again() -> None:
    weight, exact = laid("fp8", draw(OUTPUTS, INPUTS))
    x, tile = draw(3, INPUTS).bfloat16(), TILES[1]
    workspace = of_size(x.device, *sizes_of(OUTPUTS, 64, tile, 64))
    for _ in range(2):
        close(fp8.linear(x, weight, dtype=torch.float32, workspace=workspace, tile=tile), x.double() @ exact.T)
    assert not workspace.arrived.any()


@pytest.mark.parametrize("divide", [False, True])
def test_a_layout_of_nvfp4_holds_the_very_weight(divide: bool) -> None:
    weight = draw(OUTPUTS, INPUTS)
    weight[3, 16:48] = 0
    layout, exact = laid("nvfp4", weight, divide=divide)
    assert float((nvfp4_layout.unlaid(layout).double() - exact).abs().max()) < 1e-6  # the tensor's scale is rounded


def test_all_codes_and_all_block_scales_survive_the_layout_exactly() -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(126, 1)  # [126, 512 / 2]
    scale = torch.arange(1, 127, dtype=torch.uint8)[:, None].repeat(1, 32)
    layout = nvfp4_layout.lay(codes, scale.view(torch.float8_e4m3fn), torch.tensor(1.0))
    blocks = values_of(unpack(codes), torch.float64).view(126, 32, 16)
    exact = blocks * scale.view(torch.float8_e4m3fn).double()[..., None]
    assert torch.equal(nvfp4_layout.unlaid(layout).double(), exact.flatten(1))


def test_a_large_weight_is_laid_out_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_layout, _ = laid("nvfp4", draw(300, INPUTS))
    monkeypatch.setattr(nvfp4_layout, "AT_ONCE", 128)
    parts, _ = laid("nvfp4", draw(300, INPUTS))
    assert all(torch.equal(one, other) for one, other in zip(whole_layout[:3], parts[:3], strict=True))


def test_a_layout_of_fp8_holds_every_number_and_what_is_none_is_refused() -> None:
    codes = E4M3.view(torch.float8_e4m3fn).repeat(3, 1)
    assert torch.equal(fp8.unlaid(fp8.lay(codes, torch.tensor(0.5))), codes.float() * 0.5)
    for byte in (127, 129):
        scale = torch.full((1, 1), byte, dtype=torch.uint8).view(torch.float8_e4m3fn)
        with pytest.raises(ValueError, match="weight_scale: a block scale must be a number, and not negative"):
            nvfp4_layout.lay(torch.zeros(1, 8, dtype=torch.uint8), scale, torch.tensor(1.0))
    with pytest.raises(ValueError, match="weight: holds NaN"):
        fp8.lay(torch.tensor([[127]], dtype=torch.uint8).view(torch.float8_e4m3fn), torch.tensor(1.0))


@pytest.mark.parametrize("kind", list(Format))
def test_modules_that_are_fused_keep_their_own_scales_in_every_format(kind: Format) -> None:
    weights = [stored(kind, draw(32, INPUTS, seed=seed) * size, torch.float32) for seed, size in ((0, 1.0), (1, 30.0))]
    x = draw(3, INPUTS, seed=3).bfloat16()
    held = linear.hold(weights, torch.bfloat16)
    assert isinstance(held, {Format.DENSE: Tensor, Format.FP8: fp8.Fp8}.get(kind, nvfp4_layout.Nvfp4))
    exact = torch.cat([decoded(weight, torch.float64) for weight in weights])
    exact = exact.bfloat16().double() if kind is Format.DENSE else exact
    for run in (linear.linear, linear.linear_torch):
        close(run(x, held, dtype=torch.float32), x.double() @ exact.T)
    wide = linear.hold(weights, torch.float32)
    close(linear.linear(x.float(), wide), x.double() @ torch.cat([decoded(w, torch.float64) for w in weights]).T)


def test_a_module_of_another_format_than_its_sibling_is_named() -> None:
    pair = [
        Stored(name, stored(kind, draw(16, 32), torch.float32), None)
        for name, kind in (("mlp.gate_proj", Format.FP8), ("mlp.up_proj", Format.NVFP4))
    ]
    with pytest.raises(CheckpointError, match="^mlp.up_proj: is nvfp4, but mlp.gate_proj, which one launch .*, fp8"):
        module_of(pair, torch.bfloat16, torch.device(DEVICE))


def test_the_assembly_of_nvfp4_means_what_the_plain_path_means() -> None:
    numbers = random.Random(0)
    for _ in range(200):
        codes = torch.tensor([[numbers.randrange(256) for _ in range(64)]], dtype=torch.uint8)
        scale = torch.tensor([[numbers.randrange(1, 127) for _ in range(8)]], dtype=torch.uint8)
        layout = nvfp4_layout.lay(codes, scale.view(torch.float8_e4m3fn), torch.tensor(1.0))
        blocks = nvfp4_layout.unlaid(layout).view(8, 16)
        column = numbers.randrange(15)
        low, high = layout.scales[0, :, 0].tolist()
        pairs = [
            ((byte & 255) * 16 + 0x7000) * 0x10001
            for word in (low, high)
            for byte in (word >> s for s in (0, 8, 16, 24))
        ]
        words = layout.words[0, 0, column : column + 2].tolist()
        for block, found in enumerate(ptx.run(nvfp4.assembly(), 8, [*words, *pairs])):
            halves = torch.tensor([found & 0xFFFF, found >> 16]) << 16
            values = halves.to(torch.int32).view(torch.float32) * 2.0**nvfp4_layout.LOST
            assert torch.equal(values, blocks[block, column : column + 2])


def test_the_assembly_of_fp8_means_what_the_plain_path_means() -> None:
    numbers = random.Random(0)
    for start in range(0, 254, 2):
        codes = E4M3[torch.tensor([numbers.randrange(254) for _ in range(128)])]
        codes[[0, 1]] = E4M3[start : start + 2]
        layout = fp8.lay(codes[None].view(torch.float8_e4m3fn), torch.tensor(1.0))
        blocks = fp8.unlaid(layout).view(4, 32)
        words = layout.words[0, 0, :2].tolist()
        for block, found in enumerate(ptx.run(fp8.assembly(), 4, [*words, 0x7B807B80])):
            halves = torch.tensor([found & 0xFFFF, found >> 16]) << 16
            assert torch.equal(halves.to(torch.int32).view(torch.float32), blocks[block, :2])


def test_a_tile_is_a_function_of_shape_and_format_and_its_splits_share_the_inputs() -> None:
    for kind in MODULES:
        for outputs, inputs in ((248320, 5120), (5120, 17408), (96, 5120), (34816, 5120), (96, 32)):
            tile = tile_of(outputs, inputs, kind)
            assert tile == tile_of(outputs, inputs, kind)
            assert tile.splits == 1 or inputs / tile.splits >= 256
            assert len({warps % 4 == 0 for warps in tile.warps}) == 1
    assert [width_of(rows) for rows in (1, 16, 17, 33, 65, 128, 500)] == [16, 16, 32, 64, 128, 128, 128]
    assert WIDTHS == (16, 32, 64, 128)
