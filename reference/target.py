"""Targets: a checkpoint's next-token logits, hidden states and cached state, recomputed from scratch every time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import silu

from specqual.contract.checkpoint import open_target
from specqual.contract.config import LayerType, TargetConfig

from .attention import attend
from .deltanet import delta_net
from .forward import Forward, Target, check_ids
from .norm import rms_norm
from .rope import Rope, rope
from .table import is_table, load_table
from .weights import Layer, Linear, Numerics, project, read_embedding, read_head, read_layer

__all__ = ["Forward", "Target", "TransformerTarget", "load_target"]


def gather(embedding: Tensor, ids: Sequence[int], numerics: Numerics) -> Tensor:
    """Rows of an embedding [V, H] in the evaluation dtype: [T, H]; IndexError for an id outside it."""
    check_ids(ids, len(embedding))
    rows = embedding[torch.tensor(ids, dtype=torch.long, device=embedding.device)]
    return rows.to(numerics.device).to(numerics.dtype)


def run_layer(x: Tensor, layer: Layer, config: TargetConfig, turn: Rope) -> tuple[Tensor, dict[str, Tensor]]:
    """One decoder layer over the residual stream x [T, H]: the stream after it, and the state of all T tokens."""
    plus_one = config.norm_plus_one
    normed = rms_norm(x, layer.tensors["input_layernorm.weight"], config.eps, plus_one=plus_one)
    if layer.kind is LayerType.LINEAR:
        mixed, state = delta_net(normed, layer, config)
    else:
        mixed, state = attend(normed, layer, config, turn)
    x = x + mixed
    normed = rms_norm(x, layer.tensors["post_attention_layernorm.weight"], config.eps, plus_one=plus_one)
    gate, up = project(normed, layer.linears["mlp.gate_proj"]), project(normed, layer.linears["mlp.up_proj"])
    return x + project(silu(gate) * up, layer.linears["mlp.down_proj"]), state


def visible_rows(kind: LayerType, config: TargetConfig, length: int) -> range:
    """The positions among `length` cached ones that the next token's query sees: length - j < window if sliding."""
    window = config.window if kind is LayerType.SLIDING else None
    return range(0 if window is None else max(0, length - window + 1), length)


@dataclass(frozen=True, slots=True)
class TransformerTarget:
    """A Llama, Qwen3 or Qwen3.5 target with its weights decoded and held."""

    config: TargetConfig
    numerics: Numerics
    embedding: Tensor  # [V, H], stored dtype
    layers: tuple[Layer, ...]
    final_norm: Tensor  # [H]
    output: Linear  # [V, H]

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.config.eos_ids

    @property
    def max_context(self) -> int:
        return self.config.max_context

    def embed(self, ids: Sequence[int]) -> Tensor:
        return gather(self.embedding, ids, self.numerics)

    def head(self, hidden: Tensor) -> Tensor:
        return project(hidden, self.output)

    @torch.no_grad()
    def forward(self, ids: Sequence[int]) -> Forward:
        config, length = self.config, len(ids)
        turn = rope(range(length), config.rotary_dim, config.rope_theta, self.numerics.device)
        hidden, tensors, positions = [self.embed(ids)], {}, {}
        for index, layer in enumerate(self.layers):
            after, state = run_layer(hidden[-1], layer, config, turn)
            hidden.append(after)
            for part, tensor in state.items():
                name = f"target.{index}.{part}"
                if part in ("key", "value"):
                    kept = visible_rows(layer.kind, config, length)
                    tensor, positions[name] = tensor[kept.start :], tuple(kept)
                tensors[name] = tensor
        normed = rms_norm(hidden[-1], self.final_norm, config.eps, plus_one=config.norm_plus_one)
        return Forward(self.head(normed), tuple(hidden), tensors, positions)


def load_target(
    directory: Path | str,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    quantise_activations: bool = False,
) -> Target:
    """Load a target directory, decoding every weight once; CheckpointError names what is wrong with it.

    A `specqual_table` directory gives a table target. `quantise_activations` evaluates W4A4 and W8A8 modules with their
    inputs quantised by the static scales of the file; without it they are weight-only.
    """
    if is_table(directory):
        return load_table(directory)
    checkpoint = open_target(directory)
    config, numerics = checkpoint.config, Numerics(dtype, device, quantise_activations)
    return TransformerTarget(
        config,
        numerics,
        read_embedding(checkpoint).to(device),
        tuple(read_layer(checkpoint, index, numerics) for index in range(config.layers)),
        checkpoint.read(f"{config.prefix}norm.weight").to(device).to(numerics.wide),
        read_head(checkpoint, numerics),
    )
