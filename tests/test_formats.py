"""Storage formats: bit for bit what torch and compressed-tensors make of them, and what docs/formats.md says."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specqual.contract import Setup
from specqual.contract.config import parse_target
from specqual.contract.errors import CheckpointError
from specqual.contract.schema import target_linears
from specqual.decoder import make
from specqual.reference.fp8 import dequantise_fp8, encode, quantise_fp8, round_e4m3, through_fp8
from specqual.reference.nvfp4 import (
    codes_of,
    dequantise,
    pack,
    quantise_nvfp4,
    through_nvfp4,
    unpack,
    values_of,
)
from specqual.reference.target import TransformerTarget, load_target
from tests.qualification import Pair, results

from .checkpoints import HYBRID, write, write_hybrid
from .engines import greedy, said

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def bits(x: Tensor) -> Tensor:
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x


def e4m3_values() -> Tensor:
    """All finite e4m3 values that are not negative, ascending: [127]."""
    return torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()


def e4m3_hard_cases() -> Tensor:
    """Every e4m3 value, every midpoint, both neighbours of each in float32, the negatives, and a spread of others."""
    values = e4m3_values()
    points = torch.cat([values, (values[1:] + values[:-1]) / 2])
    around = torch.cat([points, points.nextafter(torch.tensor(0.0)), points.nextafter(torch.tensor(1e9))])
    spread = torch.logspace(-6, 2.6, 20001) * torch.randn(20001, generator=torch.Generator().manual_seed(0)).sign()
    return torch.cat([around, -around, spread])


def test_e4m3_rounding_equals_torch_bit_for_bit() -> None:
    x = e4m3_hard_cases()
    x = x[x.abs() < 464]  # beyond, torch has no saturation
    assert torch.equal(bits(encode(x)), bits(x.to(torch.float8_e4m3fn)))
    assert torch.equal(round_e4m3(x), x.to(torch.float8_e4m3fn).float())
    assert torch.equal(round_e4m3(x.double()), x.to(torch.float8_e4m3fn).double())


def test_e4m3_saturates_and_keeps_nan() -> None:
    x = torch.tensor([448.0, 464.0, 1e9, torch.inf, -500.0, torch.nan])
    assert round_e4m3(x)[:5].tolist() == [448.0, 448.0, 448.0, 448.0, -448.0]
    assert round_e4m3(x)[5].isnan()


def test_e4m3_rounds_a_float64_once() -> None:
    # Just above the tie between 1 and 1.125: through float32 the excess is lost and the tie goes to even.
    x = torch.tensor([1.0625 + 2.0**-40], dtype=torch.float64)
    assert round_e4m3(x).item() == 1.125
    assert x.float().to(torch.float8_e4m3fn).item() == 1.0


def test_fp8_weight_round_trip() -> None:
    weight = torch.randn(24, 40, generator=torch.Generator().manual_seed(0))
    codes, scale = quantise_fp8(weight)
    assert (codes.dtype, scale.shape, scale.dtype) == (torch.float8_e4m3fn, (), torch.float32)
    decoded = dequantise_fp8(codes, scale, torch.float64)
    assert torch.equal(decoded, codes.double() * scale.double())
    assert ((decoded - weight).abs() <= weight.abs() / 16 + scale.double() * 2**-10).all()  # half a step
    again, same = quantise_fp8(decoded.float())
    assert torch.equal(bits(again), bits(codes)) and torch.allclose(same, scale)
    assert quantise_fp8(torch.zeros(2, 2))[1] == 1


def test_e2m1_codes_are_nearest_with_ties_to_even_codes() -> None:
    x = torch.tensor([0.0, 0.25, 0.2501, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.01, 7.0, torch.inf])
    assert codes_of(x).tolist() == [0, 0, 1, 2, 2, 4, 4, 6, 6, 7, 7, 7]
    assert codes_of(-x)[1:].tolist() == [8, 9, 10, 10, 12, 12, 14, 14, 15, 15, 15]
    grid = torch.linspace(-6.5, 6.5, 2081, dtype=torch.float64)  # steps of 1/160: every midpoint is on it
    for value, code in zip(grid.tolist(), codes_of(grid).tolist(), strict=True):
        distances = [abs(Fraction(abs(value)) - Fraction(level)) for level in E2M1]
        nearest = [c for c, d in enumerate(distances) if d == min(distances)]
        assert code & 7 == min(nearest, key=lambda c: c % 2)
        assert (code >> 3 == 1) == (value < 0)


def test_codes_are_packed_with_the_even_index_in_the_low_nibble() -> None:
    codes = torch.arange(16, dtype=torch.uint8).reshape(1, 16)
    assert pack(codes)[0, :3].tolist() == [0x10, 0x32, 0x54]
    assert torch.equal(unpack(pack(codes)), codes)
    assert values_of(codes, torch.float64)[0].tolist() == E2M1 + [-value for value in E2M1]


def weight_with_hard_blocks(rows: int = 24, columns: int = 96, seed: int = 0) -> Tensor:
    """A weight with an empty block, blocks too small for an e4m3 scale, a lone value, ties and an exact maximum."""
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    weight[1, :16] = 0
    weight[2, :16] *= 1e-7
    weight[3, :16] *= 1e-5
    weight[4, 16:32] = 0
    weight[4, 17] = -2.5
    weight[5, :16] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0] * 2) / 8
    weight[6, 40] = 5.25
    return weight


def test_compressed_tensors_layout_equals_the_package_bit_for_bit() -> None:
    compressor, scheme, helpers = package()
    for weight in (weight_with_hard_blocks(seed=0), 1e-3 * weight_with_hard_blocks(seed=1), torch.zeros(2, 32)):
        outer = helpers.generate_gparam(weight.amin(), weight.amax())
        blocks = weight.reshape(len(weight), -1, 16)
        scale, _ = helpers.calculate_qparams(blocks.amin(-1), blocks.amax(-1), scheme.weights, outer)
        theirs = compressor.compress(
            {"weight": weight.clone(), "weight_scale": scale, "weight_global_scale": outer}, scheme
        )
        mine = quantise_nvfp4(weight, divide=True)
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert (tensor.shape, tensor.dtype) == (theirs[name].shape, theirs[name].dtype)
            assert torch.equal(bits(tensor), bits(theirs[name])), name
        decoded = dequantise(*mine.values(), torch.float32, divide=True)
        expected = unpacked_by_the_package(theirs)
        assert torch.allclose(decoded, expected, rtol=3e-7, atol=0)  # the package rounds scale / global scale first
        assert (decoded - weight).abs().max() <= weight.abs().max() / 6


def package() -> tuple[Any, Any, Any]:
    nvfp4 = pytest.importorskip("compressed_tensors.compressors.nvfp4")
    presets = pytest.importorskip("compressed_tensors.quantization.quant_scheme")
    helpers = pytest.importorskip("compressed_tensors.quantization.utils")
    return nvfp4.NVFP4PackedCompressor, presets.preset_name_to_scheme("NVFP4", ["Linear"]), helpers


def unpacked_by_the_package(parts: dict[str, Tensor]) -> Tensor:
    helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers")
    rows, half = parts["weight_packed"].shape
    values = helpers.unpack_fp4_from_uint8(parts["weight_packed"], rows, 2 * half, torch.float32)
    step = parts["weight_scale"].float() / parts["weight_global_scale"]
    return values * step.repeat_interleave(16, dim=1)


def test_compressed_tensors_activations_equal_the_package() -> None:
    _, scheme, helpers = package()
    forward = pytest.importorskip("compressed_tensors.quantization.lifecycle.forward")
    x = weight_with_hard_blocks(seed=7)
    outer = helpers.generate_gparam(x.amin(), x.amax() * 0.7)  # a calibration that some blocks exceed
    scale, zero = helpers.compute_dynamic_scales_and_zp(x, scheme.input_activations, torch.nn.Identity(), outer)
    theirs = forward.fake_quantize(x.clone(), scale, zero, scheme.input_activations, global_scale=outer)
    assert torch.allclose(through_nvfp4(x, outer.reshape(()), divide=True), theirs, rtol=3e-7, atol=0)


def test_modelopt_layout_equals_its_definition_in_exact_arithmetic() -> None:
    weight = weight_with_hard_blocks(rows=8, columns=48)
    weight[0, 0] = 6 * 448 / 512  # makes weight_scale_2 the power of two 2^-9, so that float32 decides nothing
    weight = weight.clamp(-5.25, 5.25)
    parts = quantise_nvfp4(weight)
    assert list(parts) == ["weight", "weight_scale", "weight_scale_2"]
    outer = parts["weight_scale_2"].item()
    assert outer == 2.0**-9
    decoded = dequantise(*parts.values(), torch.float64, divide=False)
    levels = [Fraction(value) for value in e4m3_values().tolist()]
    for row in range(8):
        for block in range(3):
            values = [Fraction(v) for v in weight[row, 16 * block : 16 * block + 16].tolist()]
            wanted = max(map(abs, values)) / 6 / Fraction(outer)
            scale = Fraction(parts["weight_scale"][row, block].float().item())
            if wanted == 0:
                assert scale == 1
            else:
                clamped = min(max(wanted, Fraction(1, 512)), Fraction(448))
                assert abs(scale - clamped) <= min(abs(level - clamped) for level in levels) + clamped / 2**22
            for place, value in enumerate(values):
                got = Fraction(decoded[row, 16 * block + place].item()) / scale / Fraction(outer)
                distances = [abs(abs(value) / scale / Fraction(outer) - Fraction(level)) for level in E2M1]
                assert abs(got) in E2M1 and distances[E2M1.index(float(abs(got)))] <= min(distances) + Fraction(
                    1, 2**20
                )


def test_both_layouts_give_the_same_codes_where_their_scales_are_reciprocal() -> None:
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(3)).clamp(-5, 5)
    weight[0, 0] = 5.25  # scales 2^-9 and 2^9
    multiplied, divided = quantise_nvfp4(weight), quantise_nvfp4(weight, divide=True)
    assert torch.equal(multiplied["weight"], divided["weight_packed"])
    assert torch.equal(bits(multiplied["weight_scale"]), bits(divided["weight_scale"]))
    assert torch.equal(
        dequantise(*multiplied.values(), torch.float64, divide=False),
        dequantise(*divided.values(), torch.float64, divide=True),
    )


@pytest.mark.parametrize("divide", [False, True])
def test_what_nvfp4_can_express_survives_it(divide: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (8, 64), generator=generator, dtype=torch.uint8)
    codes[codes == 8] = 0
    codes[:, ::16] = 7  # every block reaches six, so its scale is recovered
    scale = torch.randint(1, 126, (8, 4), generator=generator, dtype=torch.uint8)
    scale[0, 0] = 126  # 448, so the tensor scale is recovered
    outer = torch.tensor(2.0**7 if divide else 2.0**-7)
    weight = dequantise(pack(codes), scale.view(torch.float8_e4m3fn), outer, torch.float32, divide=divide)
    packed, scales, tensor_scale = quantise_nvfp4(weight, divide=divide).values()
    assert torch.equal(unpack(packed), codes)
    assert torch.equal(bits(scales), scale)
    assert tensor_scale.item() == outer.item()


def test_nvfp4_needs_whole_blocks() -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        quantise_nvfp4(torch.zeros(2, 24))


@pytest.mark.parametrize("divide", [False, True])
def test_an_all_zero_weight_stays_zero(divide: bool) -> None:
    parts = quantise_nvfp4(torch.zeros(2, 32), divide=divide)
    assert not dequantise(*parts.values(), torch.float64, divide=divide).any()


def test_modelopt_activations_below_the_smallest_scale_become_zero() -> None:
    x = torch.cat([torch.full((1, 16), 1e-9), torch.full((1, 16), 3.0)], dim=1).double()
    out = through_nvfp4(x, torch.tensor(3.0 / (6 * 448)), divide=False)
    assert not out[0, :16].any()
    assert torch.allclose(out[0, 16:], x[0, 16:], rtol=1e-7)
    assert through_nvfp4(x, torch.tensor(6 * 448 / 3.0), divide=True)[0, 16:].allclose(x[0, 16:], rtol=1e-7)


# Whole checkpoints. One hybrid (delta-net and full attention) in each format, against a dense one that holds the
# decoded weights and, for quantised activations, rounds its inputs with torch's and the package's own casts.

IDS = torch.randint(0, 32, (12,), generator=torch.Generator().manual_seed(2)).tolist()
INPUT_AMAX = 3.0
Decode = Callable[[Tensor], Tensor]


def nvfp4_parts(name: str, weight: Tensor) -> dict[str, Tensor]:
    scale = torch.tensor(INPUT_AMAX / (6 * 448))
    return {f"{name}.{part}": t for part, t in quantise_nvfp4(weight).items()} | {f"{name}.input_scale": scale}


def packed_parts(name: str, weight: Tensor) -> dict[str, Tensor]:
    scale = torch.tensor([6 * 448 / INPUT_AMAX])
    parts = quantise_nvfp4(weight, divide=True).items()
    return {f"{name}.{part}": t for part, t in parts} | {f"{name}.input_global_scale": scale}


def fp8_parts(name: str, weight: Tensor) -> dict[str, Tensor]:
    codes, scale = quantise_fp8(weight)
    return {
        f"{name}.weight": codes,
        f"{name}.weight_scale": scale,
        f"{name}.input_scale": torch.tensor(INPUT_AMAX / 448),
    }


def by_hand(parts: dict[str, Tensor], name: str) -> Tensor:
    """Decode with torch's casts alone."""
    short = {key.removeprefix(f"{name}."): value for key, value in parts.items()}
    if "weight_packed" in short:
        packed, outer = short["weight_packed"], 1 / short["weight_global_scale"].double()
    elif "weight_scale_2" in short:
        packed, outer = short["weight"], short["weight_scale_2"].double()
    else:
        return short["weight"].double() * short["weight_scale"].double()
    levels = torch.tensor(E2M1 + [-level for level in E2M1], dtype=torch.float64)
    values = torch.stack([levels[(packed & 15).long()], levels[(packed >> 4).long()]], -1).flatten(1)
    return values * short["weight_scale"].double().repeat_interleave(16, 1) * outer


SMALL = ("in_proj_a", "in_proj_b")  # as published: the small projections stay dense


def write_quantised(directory: Path, layout: str) -> tuple[Path, Path]:
    """Write a quantised hybrid and its dense equal in float64: (quantised, dense)."""
    config, dense = parse_target(HYBRID), {}
    tensors = load_file(write_hybrid(directory / "plain") / "model.safetensors")
    exact: dict[str, dict[str, str]] = {}
    for name in target_linears(config):
        if name.endswith(SMALL):
            continue
        nvfp4 = name == "lm_head" or ".mlp." in name
        if layout == "packed" or (layout == "groups" and nvfp4):
            parts = packed_parts(name, tensors[f"{name}.weight"])
        elif nvfp4:
            parts, exact[name] = nvfp4_parts(name, tensors[f"{name}.weight"]), {"quant_algo": "NVFP4"}
        else:
            parts, exact[name] = fp8_parts(name, tensors[f"{name}.weight"]), {"quant_algo": "FP8"}
        dense[f"{name}.weight"] = by_hand(parts, name)
        del tensors[f"{name}.weight"]
        tensors |= parts
    scheme: dict[str, Any] = {"quant_method": "compressed-tensors", "ignore": [f"re:.*{name}" for name in SMALL]}
    if layout == "packed":
        scheme |= {"format": "nvfp4-pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"]}}}
    elif layout == "groups":
        narrow = {"targets": ["Linear"], "format": "nvfp4-pack-quantized"}
        wide = {"targets": ["re:.*_attn\\..*"], "format": "float-quantized"}
        scheme |= {"format": "mixed-precision", "config_groups": {"a": narrow, "b": wide}}
    else:
        scheme = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": exact}
    plain = load_file(directory / "plain" / "model.safetensors")
    quantised = write(directory / "quantised", HYBRID | {"quantization_config": scheme}, tensors)
    return quantised, write(directory / "dense", HYBRID, {k: v.double() for k, v in (plain | dense).items()})


LAYOUTS = ["mixed", "packed", "groups"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_quantised_checkpoint_equals_the_dense_one_with_its_decoded_weights(tmp_path: Path, layout: str) -> None:
    quantised, dense = write_quantised(tmp_path, layout)
    mine, theirs = load_target(quantised).forward(IDS), load_target(dense).forward(IDS)
    assert (mine.logits - theirs.logits).abs().max() <= 1e-12
    assert (mine.logits - load_target(tmp_path / "plain").forward(IDS).logits).abs().max() > 0.01


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_optimised_decoder_says_of_a_quantised_checkpoint_what_it_says_of_the_dense_one(
    tmp_path: Path, layout: str
) -> None:
    requests = [greedy(IDS[start:], 8) for start in range(0, 12, 4)]
    both = write_quantised(tmp_path, layout)
    mine, theirs = (said(make(Setup(target=path, dtype="float64")), requests) for path in both)
    for one, other in zip(mine, theirs, strict=True):
        assert [token for token, _ in one[0]] == [token for token, _ in other[0]]
        assert [law for _, law in one[0]] == pytest.approx([law for _, law in other[0]], abs=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_quantised_activations_equal_a_dense_model_that_rounds_its_inputs(tmp_path: Path, layout: str) -> None:
    quantised, dense = write_quantised(tmp_path, layout)
    mine = load_target(quantised, quantise_activations=True).forward(IDS)
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float64).eval()
    rounded = 0
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not name.endswith(SMALL):
            nvfp4 = layout == "packed" or name == "lm_head" or ".mlp." in name
            module.register_forward_pre_hook(rounding_hook(nvfp4, divide=layout != "mixed"))
            rounded += 1
    assert rounded == len(target_linears(parse_target(HYBRID))) - 2
    with torch.no_grad():
        theirs = model(torch.tensor([IDS])).logits[0]
    assert (mine.logits - theirs).abs().max() <= 1e-5 * theirs.abs().max()
    assert (mine.logits - load_target(quantised).forward(IDS).logits).abs().max() > 0.01


def rounding_hook(nvfp4: bool, *, divide: bool) -> Callable[[torch.nn.Module, tuple[Tensor]], Tensor]:
    """Round a module's input as an independent reading of docs/formats.md would."""
    fp4 = pytest.importorskip("compressed_tensors.quantization.utils.fp4_utils")

    def hook(module: torch.nn.Module, arguments: tuple[Tensor]) -> Tensor:
        x = arguments[0]
        if not nvfp4:
            scale = float(torch.tensor(INPUT_AMAX / 448))
            return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).double() * scale
        outer = 1 / float(torch.tensor(6 * 448 / INPUT_AMAX)) if divide else float(torch.tensor(INPUT_AMAX / (6 * 448)))
        blocks = x.reshape(*x.shape[:-1], -1, 16)
        scale = (blocks.abs().amax(-1, keepdim=True) / 6 / outer).clamp(max=448).to(torch.float8_e4m3fn).double()
        assert (scale > 0).all()
        return (fp4.cast_to_fp4(blocks / (scale * outer)) * scale * outer).reshape(x.shape)

    return hook


def test_quantised_activations_need_a_static_input_scale(tmp_path: Path) -> None:
    quantised, _ = write_quantised(tmp_path, "mixed")
    tensors = load_file(quantised / "model.safetensors")
    del tensors["lm_head.input_scale"]
    save_file(tensors, quantised / "model.safetensors")
    assert load_target(quantised).vocab_size == 32  # weight-only needs none
    with pytest.raises(CheckpointError) as caught:
        load_target(quantised, quantise_activations=True)
    assert caught.value.field == "lm_head.input_scale"


@pytest.mark.parametrize("scales", [None, (0.03, 0.05)])
def test_an_fp8_cache_holds_scaled_e4m3_values(tmp_path: Path, scales: tuple[float, float] | None) -> None:
    plain = write_hybrid(tmp_path / "plain")
    tensors = load_file(plain / "model.safetensors")
    module = "model.layers.1.self_attn"
    if scales is not None:
        for side, scale in zip("kv", scales, strict=True):
            tensors[f"{module}.{side}_proj.{side}_scale"] = torch.tensor(scale)
    scheme = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {}}
    config = HYBRID | {"quantization_config": scheme | {"kv_cache_quant_algo": "FP8"}}
    mine = load_target(write(tmp_path / "fp8", config, tensors)).forward(IDS)
    exact = load_target(plain).forward(IDS)
    for part, scale in zip(("key", "value"), scales or (1.0, 1.0), strict=True):
        step = torch.tensor(scale).double()
        stored = (exact.tensors[f"target.1.{part}"] / step).clamp(-448, 448).to(torch.float8_e4m3fn).double() * step
        assert torch.equal(mine.tensors[f"target.1.{part}"], stored)
    assert (mine.logits - exact.logits).abs().max() > 1e-4  # attention reads what the cache holds


def test_an_fp8_cache_saturates() -> None:
    scale = torch.tensor(0.001)
    assert through_fp8(torch.tensor([3.0, -3.0]), scale).tolist() == pytest.approx([0.448, -0.448])


def test_without_a_declared_scheme_cache_scales_are_refused_and_nothing_is_rounded(tmp_path: Path) -> None:
    plain = write_hybrid(tmp_path / "plain")
    target = load_target(plain)
    assert isinstance(target, TransformerTarget)
    assert all(layer.kv_scales is None for layer in target.layers)
    tensors = load_file(plain / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.k_scale"] = torch.tensor(1.0)
    with pytest.raises(CheckpointError, match="k_scale"):
        load_target(write(tmp_path / "extra", HYBRID, tensors))


def test_a_committed_quantised_target_runs() -> None:
    directory = Path(__file__).parents[1] / "fixtures" / "nano" / "hybrid-nvfp4"
    assert json.loads((directory / "config.json").read_text())["quantization_config"]
    plain = load_target(directory).forward(IDS).logits
    rounded = load_target(directory, quantise_activations=True).forward(IDS).logits
    assert plain.isfinite().all() and 0 < (plain - rounded).abs().max() < plain.abs().max()


def test_bfloat16_evaluation_stays_near(tmp_path: Path) -> None:
    directory = write_hybrid(tmp_path)
    exact = load_target(directory).forward(IDS).logits
    near = load_target(directory, dtype=torch.bfloat16).forward(IDS)
    assert near.logits.dtype == torch.bfloat16
    assert near.tensors["target.0.state"].dtype == torch.float32
    assert (near.logits.double() - exact).norm() <= 0.05 * exact.norm()


def test_a_weight_only_decoder_need_not_read_the_scales_of_activations() -> None:
    line = results("reference", Pair("nano/hybrid-nvfp4"), ["CKP-3"])["CKP-3"]
    assert line["verdict"] == "EXACT", line["detail"]
    assert "unread" in {case["expect"] for case in line["evidence"]["cases"]}
