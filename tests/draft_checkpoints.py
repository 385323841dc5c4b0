"""Drafter checkpoints with random weights for tests: small, of every method, and far from flat."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specqual.contract.draft import parse_draft
from specqual.contract.quantisation import Quantisation
from specqual.contract.schema import draft_schema

VOCAB, HIDDEN, LAYERS, MASK, BLOCK = 96, 32, 4, 3, 6  # vocabulary, width and layers are those of nano/hybrid
FULL, SLIDING, WINDOW = "full_attention", "sliding_attention", 7
SELECTOR = {"selector_rank": 8, "selector_top_k": 16}
CONVOLUTION = {"conv_kernel_size": 2, "conv_group_size": 8}
METHODS: dict[str, dict[str, Any]] = {
    "dflash": {},
    "dflash-selector": SELECTOR,
    "dflash-conv": CONVOLUTION | {"conv_kernel_size": 3},
    "dflash2": SELECTOR | CONVOLUTION,
}


def configuration(layers: Sequence[str], causal: bool, window: int = WINDOW, **draft: Any) -> dict[str, Any]:
    slides = SLIDING in layers
    return {
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": len(layers),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
        "attention_bias": False,
        "tie_word_embeddings": False,
        "layer_types": list(layers),
        "use_sliding_window": slides,
        "sliding_window": window if slides else None,
        "is_causal": causal,
        "num_target_layers": LAYERS,
        "dflash_config": {"block_size": BLOCK, "mask_token_id": MASK, "target_layer_ids": [2, 0, 1]} | draft,
    }


def tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random weights: norms about one, convolutions and codebooks large enough to matter."""
    random, found = torch.Generator().manual_seed(seed), {}
    for name, expected in draft_schema(parse_draft(config), Quantisation()).items():
        shape = expected.shapes[0]
        noise = torch.randn(shape, generator=random)
        if len(shape) == 1:
            found[name] = 1 + 0.2 * noise
        elif "codebook" in name or "base_kernel" in name or "markov" in name:
            found[name] = 0.8 * noise
        else:
            found[name] = noise * 1.5 / shape[1] ** 0.5
    return found


def write(directory: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, directory / "model.safetensors")
    return directory


def no_uniforms(slot: int) -> float:
    raise AssertionError("a greedy draft needs no random number")
