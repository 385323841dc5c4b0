"""Every tensor and every key of a checkpoint is used or refused by name."""

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specqual.contract import Method
from specqual.contract.checkpoint import open_draft, open_target
from specqual.contract.config import parse_target
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Format, parse_quantisation
from specqual.fixtures import path

from .checkpoints import DFLASH2, HYBRID, write_dflash2, write_hybrid


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_hybrid(tmp_path / "target")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return write_dflash2(tmp_path / "draft")


def rewrite(directory: Path, change: Any) -> None:
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    (changed["dflash_config"] if key in changed.get("dflash_config", {}) else changed).pop(key)
    return changed


def test_a_valid_target_and_drafter_open_with_every_tensor_accounted_for(target: Path, draft: Path) -> None:
    opened = open_target(target)
    assert set(opened.tensors) == set(load_file(target / "model.safetensors"))
    drafter = open_draft(draft, opened.config)
    assert drafter.config.method is Method.DFLASH2
    assert torch.equal(drafter.read("fc.weight"), load_file(draft / "model.safetensors")["fc.weight"])


def test_each_missing_tensor_is_named(target: Path, draft: Path) -> None:
    for directory, opener in ((target, open_target), (draft, open_draft)):
        whole = load_file(directory / "model.safetensors")
        for name in whole:
            save_file({k: v for k, v in whole.items() if k != name}, directory / "model.safetensors")
            with pytest.raises(CheckpointError, match=f"{re.escape(name)}.*is missing"):
                opener(directory)


def test_each_renamed_or_extra_tensor_is_named(target: Path, draft: Path) -> None:
    for directory, opener in ((target, open_target), (draft, open_draft)):
        rewrite(directory, lambda tensors: tensors.update({"layers.0.extra.weight": torch.zeros(1)}))
        with pytest.raises(CheckpointError, match="layers.0.extra.weight.*not a tensor"):
            opener(directory)


def test_each_misshapen_tensor_is_named(draft: Path) -> None:
    whole = load_file(draft / "model.safetensors")
    for name, tensor in whole.items():
        save_file({**whole, name: torch.zeros(*tensor.shape, 2)}, draft / "model.safetensors")
        with pytest.raises(CheckpointError, match=f"{re.escape(name)}: has shape") as caught:
            open_draft(draft)
        assert caught.value.field == name


def test_a_wrong_dtype_is_named(draft: Path) -> None:
    rewrite(draft, lambda tensors: tensors.update({"fc.weight": tensors["fc.weight"].to(torch.int32)}))
    with pytest.raises(CheckpointError, match="fc.weight: has dtype I32"):
        open_draft(draft)


def test_codebooks_load_with_and_without_the_weight_suffix_but_not_with_both(draft: Path) -> None:
    plain = open_draft(draft).read("candidate_selector.predecessor_codebook")

    def suffix(tensors: dict[str, torch.Tensor]) -> None:
        for book in ("predecessor_codebook", "successor_codebook"):
            tensors[f"candidate_selector.{book}.weight"] = tensors.pop(f"candidate_selector.{book}")

    rewrite(draft, suffix)
    assert torch.equal(open_draft(draft).read("candidate_selector.predecessor_codebook"), plain)
    rewrite(draft, lambda tensors: tensors.update({"candidate_selector.predecessor_codebook": plain.clone()}))
    with pytest.raises(CheckpointError, match="stored twice"):
        open_draft(draft)


def test_a_truncated_file_is_named(target: Path) -> None:
    path = target / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="model.safetensors: is not a readable safetensors file"):
        open_target(target)


def test_a_header_that_promises_more_than_the_file_holds_allocates_nothing(target: Path) -> None:
    header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    (target / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 64)
    with pytest.raises(CheckpointError, match="model.safetensors"):
        open_target(target)
    (target / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="model.safetensors"):
        open_target(target)


def test_a_shard_outside_the_directory_is_refused(target: Path) -> None:
    index = {"weight_map": {"lm_head.weight": "../elsewhere/model.safetensors"}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="weight_map.*outside"):
        open_target(target)


def test_shards_are_read_through_their_index(target: Path) -> None:
    whole = load_file(target / "model.safetensors")
    names = sorted(whole)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: whole[name] for name in part}, target / f"model-{number}.safetensors")
    files = {name: f"model-{place % 2}.safetensors" for place, name in enumerate(names)}
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    (target / "model.safetensors").unlink()
    assert set(open_target(target).tensors) == set(whole)


def test_only_tensors_behind_the_prefix_are_the_drafters(draft: Path) -> None:
    def move(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors[f"draft_model.{name}"] = tensors.pop(name)
        tensors["model.embed_tokens.weight"] = torch.zeros(2, 2)

    rewrite(draft, move)
    assert "fc.weight" in open_draft(draft, prefix="draft_model.").tensors
    with pytest.raises(CheckpointError):
        open_draft(draft)


def test_parts_of_other_modalities_and_the_mtp_layer_are_left_out_by_name(target: Path) -> None:
    rewrite(target, lambda tensors: tensors.update({"mtp.fc.weight": torch.zeros(1), "model.visual.x": torch.zeros(1)}))
    assert sorted(open_target(target).left_out) == ["model.visual.x", "mtp.fc.weight"]


@pytest.mark.parametrize("key", ["block_size", "is_causal", "mask_token_id", "target_layer_ids"])
def test_a_drafter_has_no_silent_default_for(key: str) -> None:
    with pytest.raises(CheckpointError, match=f"{key}.*is missing"):
        parse_draft(without(DFLASH2, key))


def test_the_nested_dflash_config_wins_over_the_top_level() -> None:
    assert parse_draft({**DFLASH2, "block_size": 16}).block_size == 4
    flat = {**DFLASH2, **DFLASH2["dflash_config"]}
    flat.pop("dflash_config")
    assert parse_draft(flat) == parse_draft(DFLASH2)


def test_an_unknown_key_is_refused_by_name_at_both_levels() -> None:
    with pytest.raises(CheckpointError, match="config.json: rope_wobble: is not known"):
        parse_target({**HYBRID, "rope_wobble": 1})
    nested = copy.deepcopy(DFLASH2)
    nested["dflash_config"]["wobble"] = 1
    with pytest.raises(CheckpointError, match=r"dflash_config.wobble: is not known"):
        parse_draft(nested)


def test_an_unknown_model_type_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="model_type: must be one of 'llama'.*got 'mamba'"):
        parse_target({**HYBRID, "model_type": "mamba"})


def test_a_rope_scaling_that_is_not_implemented_is_refused() -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4}
    with pytest.raises(CheckpointError, match="rope_type: must be one of 'default', got 'yarn'"):
        parse_draft({**DFLASH2, "rope_parameters": rope})


ROPE = HYBRID["rope_parameters"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling: stands beside rope_parameters"),
        ({"rope_parameters": None, "rope_scaling": ROPE | {"factor": 2.0}}, "rope_scaling: factor: is not known"),
        ({"rope_theta": 5e5}, "rope_theta: contradicts config.json: rope_parameters: rope_theta"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: contradicts"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "partial_rotary_factor: is missing"),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "rope_theta: is missing"),
        ({"layer_types": ["linear_attention", "sliding_attention"]}, "layer_types: must be of full_attention, linear"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps: must be a number"),
    ],
)
def test_a_setting_that_two_readers_would_take_differently_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(field)):
        parse_target(HYBRID | change)


def test_rope_settings_agree_wherever_they_stand() -> None:
    parsed = parse_target(HYBRID)
    assert parse_target(without(HYBRID, "rope_parameters") | {"rope_scaling": ROPE}) == parsed
    flat = {"rope_theta": ROPE["rope_theta"], "partial_rotary_factor": ROPE["partial_rotary_factor"]}
    assert parse_target(without(HYBRID, "rope_parameters") | flat) == parse_target(HYBRID | flat) == parsed


@pytest.mark.parametrize(("key", "value"), [("tie_word_embeddings", True), ("eos_token_id", 3)])
def test_the_multimodal_wrapper_must_not_contradict_its_text_part(key: str, value: Any) -> None:
    wrapper = {"model_type": "qwen3_5", "text_config": HYBRID}
    assert parse_target(wrapper | {key: HYBRID[key]}).eos_ids == (1,)
    with pytest.raises(CheckpointError, match=f"config.json: {key}: contradicts config.json: text_config: {key}"):
        parse_target(wrapper | {key: value})


def test_causality_is_written_down_once_or_twice_alike() -> None:
    assert parse_draft({**without(DFLASH2, "is_causal"), "causal": True}).is_causal
    assert not parse_draft(DFLASH2 | {"causal": False}).is_causal
    with pytest.raises(CheckpointError, match="config.json: causal: contradicts config.json: is_causal"):
        parse_draft(DFLASH2 | {"causal": True})


def test_the_last_target_layer_is_no_feature_of_a_drafter() -> None:
    nested = DFLASH2["dflash_config"] | {"target_layer_ids": [0, 1]}
    with pytest.raises(CheckpointError, match=r"dflash_config.target_layer_ids: names the last layer, 1"):
        parse_draft(DFLASH2 | {"dflash_config": nested})


def test_a_key_that_stands_twice_is_refused_by_name(target: Path) -> None:
    text = (target / "config.json").read_text()
    (target / "config.json").write_text(text.replace("{", '{"rms_norm_eps": 0.5, ', 1))
    with pytest.raises(CheckpointError, match="config.json: .*'rms_norm_eps' stands twice"):
        open_target(target)


def test_parts_that_an_architecture_does_not_have_are_not_left_out(tmp_path: Path) -> None:
    dense = Path(shutil.copytree(path("nano/dense"), tmp_path / "dense"))
    rewrite(dense, lambda tensors: tensors.update({"visual.weight": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match="visual.weight: is not a tensor"):
        open_target(dense)


def test_the_method_follows_from_the_configured_parts() -> None:
    def method(*dropped: str, **added: Any) -> Method:
        config = copy.deepcopy(DFLASH2)
        config["architectures"] = ["DFlashDraftModel"]
        for key in dropped:
            config["dflash_config"].pop(key)
        config["dflash_config"].update(added)
        return parse_draft(config).method

    conv, selector = ("conv_kernel_size", "conv_group_size"), ("selector_rank", "selector_top_k")
    assert method() is Method.DFLASH2
    assert method(*conv) is Method.DFLASH_SELECTOR
    assert method(*selector) is Method.DFLASH_CONV
    assert method(*conv, *selector) is Method.DFLASH
    assert method(*conv, *selector, markov_rank=4, sample_from_anchor=True) is Method.MARKOV
    with pytest.raises(CheckpointError, match="selector_top_k.*missing"):
        method("selector_top_k")


def test_a_drafter_of_another_target_is_refused(target: Path, draft: Path) -> None:
    config = json.loads((draft / "config.json").read_text())
    config["num_target_layers"] = 3
    (draft / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="num_target_layers: is 3, but the target's is 2"):
        open_draft(draft, open_target(target).config)


def test_the_per_module_format_comes_from_the_file() -> None:
    modelopt = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"lm_head": {"quant_algo": "NVFP4"}, "model.a": {"quant_algo": "FP8"}},
    }
    mixed = parse_quantisation({"quantization_config": modelopt}, None)
    assert [mixed.format_of(name) for name in ("lm_head", "model.a", "model.b")] == [
        Format.NVFP4,
        Format.FP8,
        Format.DENSE,
    ]
    packed = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"]}},
        "ignore": ["lm_head", "re:.*in_proj_.*"],
    }
    quantisation = parse_quantisation({"quantization_config": packed}, None)
    assert quantisation.format_of("lm_head") is Format.DENSE
    assert quantisation.format_of("model.layers.0.linear_attn.in_proj_a") is Format.DENSE
    assert quantisation.format_of("model.layers.0.mlp.up_proj") is Format.NVFP4_PACKED
    with pytest.raises(CheckpointError, match="quant_method: must be"):
        parse_quantisation({"quantization_config": {"quant_method": "gguf"}}, None)


MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"}}
SCHEME = {"num_bits": 8, "type": "float", "dynamic": False}
WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
PACKED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS | {"dynamic": False}}},
    "sparsity_config": {},
    "transform_config": None,
}


NARROW = {"targets": ["Linear"], "format": "nvfp4-pack-quantized", "weights": WEIGHTS}
WIDE = {
    "targets": ["re:.*self_attn.*", "model.layers.0.mlp.up_proj"],
    "format": "float-quantized",
    "weights": SCHEME | {"strategy": "tensor", "symmetric": True},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
}
GROUPED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "mixed-precision",
    "config_groups": {"group_0": NARROW, "group_1": WIDE},
    "ignore": ["lm_head", "re:.*_proj_a$"],
}


def test_groups_are_told_apart_by_names_and_patterns_before_the_class() -> None:
    def format_of(module: str, groups: dict[str, Any] = GROUPED["config_groups"]) -> Format:
        return parse_quantisation({"quantization_config": GROUPED | {"config_groups": groups}}, None).format_of(module)

    assert format_of("model.layers.3.self_attn.q_proj") is Format.FP8
    assert format_of("model.layers.0.mlp.up_proj") is Format.FP8
    assert format_of("model.layers.1.mlp.up_proj") is Format.NVFP4_PACKED
    assert format_of("lm_head") is format_of("model.layers.3.self_attn.in_proj_a") is Format.DENSE
    only = {"group_1": WIDE}
    assert format_of("model.layers.1.mlp.up_proj", only) is Format.DENSE
    named = {"a": WIDE, "b": NARROW | {"targets": ["model.layers.3.self_attn.q_proj"]}}
    assert format_of("model.layers.3.self_attn.q_proj", named) is Format.NVFP4_PACKED
    assert format_of("model.layers.3.self_attn.k_proj", named) is Format.FP8


def test_a_cache_in_fp8_is_found_under_both_names() -> None:
    for how in ({"kv_cache_quant_algo": "FP8"}, {"kv_cache_scheme": SCHEME}):
        assert parse_quantisation({"quantization_config": MODELOPT | how}, None).kv_scales
        assert parse_quantisation({}, {"producer": {}, "quantization": {"quant_algo": "FP8"} | how}).kv_scales
    assert parse_quantisation({"quantization_config": PACKED | {"kv_cache_scheme": SCHEME}}, None).kv_scales
    assert not parse_quantisation({"quantization_config": PACKED}, None).kv_scales


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (MODELOPT | {"kv_cache_quant_algo": "NVFP4"}, "kv_cache_quant_algo: must be one of 'FP8'"),
        (MODELOPT | {"kv_cache_scheme": SCHEME | {"num_bits": 4}}, "kv_cache_scheme: num_bits"),
        (MODELOPT | {"kv_cache_scheme": SCHEME | {"dynamic": True}}, "kv_cache_scheme: dynamic"),
        (MODELOPT | {"kv_cache_scheme": SCHEME | {"colour": 1}}, "kv_cache_scheme: colour: is not known"),
        (MODELOPT | {"pre_quant_scale": True}, "quantization_config: pre_quant_scale: is not known"),
        (MODELOPT | {"group_size": 32}, "group_size: must be one of 16"),
        (MODELOPT | {"quant_algo": "NVFP4_AWQ"}, "quant_algo: must be one of"),
        (
            MODELOPT | {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"x": {"quant_algo": "FP8", "y": 1}}},
            "quantized_layers: x: y: is not known",
        ),
        (PACKED | {"transform_config": {"config_groups": {}}}, "transform_config: must be one of {}"),
        (PACKED | {"sparsity_config": {"format": "dense"}}, "sparsity_config"),
        (PACKED | {"config_groups": {"a": {"targets": ["Linear"], "weights": WEIGHTS | {"num_bits": 8}}}}, "num_bits"),
        (PACKED | {"config_groups": {"a": {"targets": ["Linear"]}, "b": {}}}, "config_groups: b: targets: must name"),
        (PACKED | {"config_groups": {}}, "config_groups: must hold at least one"),
        (
            PACKED | {"config_groups": {"a": {"targets": ["Attention"]}}},
            "targets: 'Attention' is neither Linear, nor",
        ),
        (PACKED | {"format": "mixed-precision"}, "config_groups: group_0: format: must be one of"),
        (PACKED | {"format": "int-quantized"}, "quantization_config: format: must be one of"),
        (GROUPED | {"config_groups": {"a": NARROW | {"format": "float-quantized"}}}, "a: weights: num_bits"),
        (
            GROUPED | {"config_groups": {"a": WIDE | {"weights": {"num_bits": 8, "strategy": "channel"}}}},
            "a: weights: strategy: must be one of 'tensor', got 'channel'",
        ),
        (PACKED | {"ignore": ["re:(x"]}, "ignore: 're:(x' is not a regular expression"),
        (PACKED | {"ignore": ["re:" + "(" * 5000]}, "is not a regular expression"),
        (PACKED | {"ignore": ["re:x{99999999999}"]}, "is not a regular expression"),
    ],
)
def test_a_quantisation_that_is_not_evaluated_is_refused_by_name(content: dict[str, Any], field: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(field)):
        parse_quantisation({"quantization_config": content}, None)


def test_kv_scales_are_found_under_either_of_their_names(target: Path) -> None:
    config = {**HYBRID, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["*"]}}
    config["quantization_config"]["kv_cache_scheme"] = {"num_bits": 8}
    (target / "config.json").write_text(json.dumps(config))
    rewrite(target, lambda tensors: tensors.update({"model.layers.1.self_attn.k_scale": torch.tensor(0.5)}))
    assert open_target(target).read("model.layers.1.self_attn.k_proj.k_scale").item() == 0.5
