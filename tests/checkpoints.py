"""Tiny valid checkpoints on disk, for tests that break them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specqual.contract.config import parse_target
from specqual.contract.draft import parse_draft
from specqual.contract.quantisation import Quantisation
from specqual.contract.schema import Schema, draft_schema, target_schema

HYBRID: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}

DFLASH2: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "layer_types": ["sliding_attention"],
    "use_sliding_window": True,
    "sliding_window": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "max_position_embeddings": 64,
    "num_target_layers": 2,
    "is_causal": False,
    "dflash_config": {
        "block_size": 4,
        "mask_token_id": 2,
        "target_layer_ids": [0],
        "conv_kernel_size": 2,
        "conv_group_size": 8,
        "selector_rank": 4,
        "selector_top_k": 8,
    },
}


def tensors_of(schema: Schema, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random float32 tensors for every dense entry of a schema that must be there."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(expected.shapes[0], generator=generator) * 0.3
        for name, expected in schema.items()
        if not expected.optional
    }


def write(directory: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors")
    return directory


def write_hybrid(directory: Path) -> Path:
    return write(directory, HYBRID, tensors_of(target_schema(parse_target(HYBRID), Quantisation())))


def write_dflash2(directory: Path) -> Path:
    return write(directory, DFLASH2, tensors_of(draft_schema(parse_draft(DFLASH2), Quantisation())))
