"""The target: one forward pass over the spans of a whole batch, with every cached row in the pools."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig

from .arithmetic import Linear, Turns, linear, mlp, rms_norm, rotate, wide, wide_dtype
from .attention import attend, pieces
from .deltanet import Inputs, convolve, recur
from .formats import through_e4m3
from .memory import Store
from .pages import Stream
from .replay import Replay, replay_of
from .span import Pass, Span
from .tile import TILE, padded, tiled
from .weights import Layer, read_layer, read_linear


@dataclass(frozen=True, slots=True)
class Transformer:
    """A Llama, Qwen3 or Qwen3.5 target. `taps` are the layers whose output a drafter reads, in its order."""

    config: TargetConfig
    dtype: torch.dtype
    embedding: Tensor  # [V, H]
    layers: tuple[Layer, ...]
    gain: Tensor  # [H], of the final norm
    output: Linear  # [V, H]
    turns: Turns
    taps: tuple[int, ...] = ()

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.config.eos_ids

    @property
    def max_context(self) -> int:
        return self.config.max_context

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The cached streams, one for each layer with attention."""
        config = self.config
        return tuple(
            Stream(
                f"target.{i}", config.kv_heads, config.head_dim, config.window if kind is LayerType.SLIDING else None
            )
            for i, kind in enumerate(config.layer_types)
            if kind is not LayerType.LINEAR
        )

    def embed(self, ids: Sequence[int]) -> Tensor:
        return self.embedding[list(ids)].to(self.dtype)

    def head(self, normed: Tensor) -> Tensor:
        """Logits [16, V], wide, of one tile of normed rows."""
        return linear(wide(normed), self.output)

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        """Run all spans at once. Their rows lie behind each other, so a tile holds rows of several samples."""
        places, end = list[slice](), 0
        for span in spans:
            places.append(slice(end, end + len(span.new)))
            end += len(span.new)
        x = padded(self.embed([token for span in spans for token in span.new]), rows)
        positions = padded(torch.cat([torch.arange(span.start, span.end) for span in spans]), rows)
        cos, sin = self.turns.at(positions)
        tapped, replay, net = dict[int, Tensor](), None, self.config.delta_net
        for index, layer in enumerate(self.layers):
            if layer.kind is LayerType.LINEAR:
                assert net is not None
                replay = replay or replay_of(spans, places, net.kernel, store.slots.longest)
                mixed = self._recur(index, layer, x, replay, store)
            else:
                mixed = self._attend(index, layer, x, cos, sin, spans, places, store)
            x = self._rest(layer, x, mixed)
            tapped[index] = x
        features = torch.cat([tapped[tap] for tap in self.taps], dim=1) if self.taps else x[:, :0]
        judged = [x[place.stop - span.judged : place.stop] for span, place in zip(spans, places, strict=True)]
        logits = torch.zeros(0, self.config.vocab_size)
        if any(span.judged for span in spans):
            eps = self.config.eps
            (logits,) = tiled(lambda x: (self.head(rms_norm(x, self.gain, eps)),), padded(torch.cat(judged)))
        told = torch.split(logits[: sum(span.judged for span in spans)], [span.judged for span in spans])
        return Pass(tuple(told), tuple(features[place] for place in places))

    def _rest(self, layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
        """The end of a layer: the residual sum, and the MLP behind its norm."""

        def kernel(x: Tensor, mixed: Tensor) -> tuple[Tensor]:
            x = x + mixed
            normed = rms_norm(x, layer.tensors["post_attention_layernorm.weight"], self.config.eps)
            return (x + mlp(normed, layer.linears, "mlp"),)

        return tiled(kernel, x, mixed)[0]

    def _attend(
        self,
        index: int,
        layer: Layer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        spans: Sequence[Span],
        places: Sequence[slice],
        store: Store,
    ) -> Tensor:
        config, stream = self.config, store.pages.streams[f"target.{index}"]

        def project(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            x = rms_norm(x, layer.tensors["input_layernorm.weight"], config.eps)
            query = linear(x, layer.linears["self_attn.q_proj"]).reshape(TILE, config.heads, -1)
            query, gate = query[..., : config.head_dim].contiguous(), query[..., config.head_dim :].contiguous()
            key = linear(x, layer.linears["self_attn.k_proj"]).reshape(TILE, config.kv_heads, -1)
            value = linear(x, layer.linears["self_attn.v_proj"]).reshape(TILE, config.kv_heads, -1)
            if config.qk_norm:
                query = rms_norm(query, layer.tensors["self_attn.q_norm.weight"], config.eps)
                key = rms_norm(key, layer.tensors["self_attn.k_norm.weight"], config.eps)
            key = rotate(key, cos, sin)
            if layer.kv_scales is not None:
                key, value = (
                    through_e4m3(side, scale) for side, scale in zip((key, value), layer.kv_scales, strict=True)
                )
            return rotate(query, cos, sin), gate.sigmoid(), key, value

        def finish(seen: Tensor, gate: Tensor) -> tuple[Tensor]:
            return (
                linear((seen * gate if config.output_gate else seen).flatten(1), layer.linears["self_attn.o_proj"]),
            )

        query, gate, key, value = tiled(project, x, cos, sin)
        seen = torch.zeros_like(query)
        for span, place in zip(spans, places, strict=True):
            table = span.memory.tables[stream.name]
            store.pages.write(stream, table, span.start, key[place], value[place])
            first, old_key, old_value = store.pages.read(stream, table, stream.first(span.start), span.end)
            keys = torch.arange(first, first + len(old_key))
            for start in range(span.start, span.end, TILE):
                rows = slice(place.start + start - span.start, min(place.stop, place.start + start - span.start + TILE))
                distance = torch.arange(start, start + TILE)[:, None] - keys
                visible = (distance >= 0) & (keys < span.end)
                if stream.window is not None:
                    visible &= distance < stream.window
                parts = pieces(old_key, old_value, visible)
                seen[rows] = attend(padded(query[rows]), parts, config.kv_heads)[: rows.stop - rows.start]
        return tiled(finish, seen, gate)[0]

    def _recur(self, index: int, layer: Layer, x: Tensor, replay: Replay, store: Store) -> Tensor:
        config, net = self.config, self.config.delta_net
        assert net is not None
        rate, bias = layer.tensors["linear_attn.A_log"].exp(), layer.tensors["linear_attn.dt_bias"]
        taps, keys = layer.tensors["linear_attn.conv1d.weight"].squeeze(1), net.key_heads * net.key_dim

        def project(x: Tensor) -> tuple[Tensor, ...]:
            x = rms_norm(x, layer.tensors["input_layernorm.weight"], config.eps)
            mixed, z, b, a = (
                linear(x, layer.linears[f"linear_attn.in_proj_{name}"]) for name in ("qkv", "z", "b", "a")
            )
            return mixed, z, torch.exp(-rate * softplus(wide(a) + bias)), wide(b).sigmoid()

        def heads(convolved: Tensor) -> tuple[Tensor, ...]:
            query, key, value = torch.tensor_split(silu(convolved), [keys, 2 * keys], dim=-1)
            query, key = (
                unit(side.reshape(TILE, net.key_heads, net.key_dim)).repeat_interleave(
                    net.value_heads // net.key_heads, dim=1
                )
                for side in (query, key)
            )
            return query * net.key_dim**-0.5, key, value.reshape(TILE, net.value_heads, net.value_dim)

        def finish(seen: Tensor, z: Tensor) -> tuple[Tensor]:
            normed = rms_norm(seen, layer.tensors["linear_attn.norm.weight"], config.eps)
            gated = normed * silu(wide(z)).reshape(normed.shape)
            return (linear(gated.flatten(1).to(x.dtype), layer.linears["linear_attn.out_proj"]),)

        mixed, z, decay, beta = tiled(project, x)
        states, convs, logs = store.slots.load(replay.slots, index)
        rows = torch.cat([convs.flatten(0, 1), logs.mixed.flatten(0, 1), mixed])
        query, key, value = tiled(heads, padded(convolve(rows[replay.taps], taps), len(mixed)))
        new = Inputs(mixed, key, value, decay, beta)
        seen, states = recur(states, query, new.behind(logs), replay)
        store.slots.store(index, states, rows[replay.tails], new, replay)
        return tiled(finish, padded(seen, len(z)), z)[0]


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def load_target(checkpoint: Checkpoint[TargetConfig], dtype: torch.dtype, taps: tuple[int, ...]) -> Transformer:
    """Decode every weight of an accounted checkpoint once."""
    config, wide = checkpoint.config, wide_dtype(dtype)
    embedding = checkpoint.read(f"{config.prefix}embed_tokens.weight")
    gain = checkpoint.read(f"{config.prefix}norm.weight").to(wide)
    return Transformer(
        config,
        dtype,
        embedding,
        tuple(read_layer(checkpoint, index, dtype) for index in range(config.layers)),
        1 + gain if config.norm_plus_one else gain,
        Linear(embedding.to(dtype).to(wide)) if config.tied else read_linear(checkpoint, "lm_head", dtype),
        Turns.of(config.max_context, config.rotary_dim, config.rope_theta, wide),
        taps,
    )
