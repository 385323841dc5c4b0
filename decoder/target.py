"""The target: one forward pass over the spans of a whole batch, with every cached row in the pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig

from .arithmetic import Linear, Turns, gain_of, linear, mlp, narrow, rms_norm, rotate, shrink, wide, wide_dtype
from .attention import Attention, attend
from .deltanet import Inputs, convolve, recur
from .memory import Store
from .pages import Stream
from .replay import Replay, replay_of
from .span import Pass, Span
from .streams import target_streams
from .tile import TILED, Tiling
from .view import Rows, View, rows_of, view_of
from .weights import Layer, read_layer, read_linear


@dataclass(frozen=True, slots=True)
class Layout:
    """What the layers of one pass share: where its rows lie and stand, and what they see through each window."""

    spans: Sequence[Span]
    rows: Rows
    cos: Tensor  # [R, 1, rotary_dim / 2]
    sin: Tensor
    views: Mapping[int | None, View]
    replay: Replay | None


@dataclass(frozen=True, slots=True)
class Transformer:
    """A Llama, Qwen3 or Qwen3.5 target. `taps` are the layers whose output a drafter reads, in its order.

    `tiling` and `attention` are how it is run; others than these cost the promise about bits.
    """

    config: TargetConfig
    dtype: torch.dtype
    embedding: Tensor  # [V, H]
    layers: tuple[Layer, ...]
    gain: Tensor  # [H], of the final norm
    output: Linear  # [V, H]
    turns: Turns
    taps: tuple[int, ...] = ()
    tiling: Tiling = TILED
    attention: Attention = attend

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
    def longest_product(self) -> int:
        """The most inputs of any linear module."""
        modules = (module for layer in self.layers for module in (layer.enter, layer.leave, layer.down))
        return max(len(module.weight) for module in modules)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The cached streams, one for each layer with attention."""
        return target_streams(self.config, self.dtype, lambda layer: self.layers[layer].scales)

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
        layout = self._layout(spans, places, store, rows)
        x = self.tiling.padded(self.embed([token for span in spans for token in span.new]), rows)
        tapped = dict[int, Tensor]()
        for index, layer in enumerate(self.layers):
            mix = self._recur if layer.kind is LayerType.LINEAR else self._attend
            x = self._rest(layer, x, mix(index, layer, x, layout, store))
            tapped[index] = x
        features = torch.cat([tapped[tap] for tap in self.taps], dim=1) if self.taps else x[:, :0]
        judged = [x[place.stop - span.judged : place.stop] for span, place in zip(spans, places, strict=True)]
        logits = torch.zeros(0, self.config.vocab_size)
        if any(span.judged for span in spans):
            (logits,) = self.tiling.run(self._logits, self.tiling.padded(torch.cat(judged)))
        told = torch.split(logits[: sum(span.judged for span in spans)], [span.judged for span in spans])
        return Pass(tuple(told), tuple(features[place] for place in places))

    def _layout(self, spans: Sequence[Span], places: Sequence[slice], store: Store, least: int) -> Layout:
        net, count = self.config.delta_net, self.tiling.ceil(max(least, places[-1].stop))
        rows = rows_of(places, [span.start for span in spans], count)
        views = {
            stream.window: view_of(
                rows, [stream.first(span.start) for span in spans], [span.end for span in spans], stream.window
            )
            for stream in {stream.window: stream for stream in self.streams}.values()
        }
        replay = None if net is None else replay_of(spans, places, net.kernel, store.slots.longest, count)
        cos, sin = self.turns.at(self.tiling.padded(rows.positions, least), self.dtype)
        return Layout(spans, rows, cos, sin, views, replay)

    def _logits(self, x: Tensor) -> tuple[Tensor]:
        return (self.head(rms_norm(x, self.gain, self.config.eps)),)

    def _rest(self, layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
        """The end of a layer: the residual sum, and the MLP behind its norm."""

        def kernel(x: Tensor, mixed: Tensor) -> tuple[Tensor]:
            x = x + mixed
            return (x + mlp(rms_norm(x, layer.tensors["mlp_norm"], self.config.eps), layer.gate_up, layer.down),)

        return self.tiling.run(kernel, x, mixed)[0]

    def _attend(self, index: int, layer: Layer, x: Tensor, layout: Layout, store: Store) -> Tensor:
        config, stream = self.config, store.pages.streams[f"target.{index}"]
        heads, turned = config.heads, config.heads + config.kv_heads
        widths = [width * config.head_dim for width in (turned, config.kv_heads, heads * config.output_gate)]

        def project(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            entered = linear(rms_norm(x, layer.tensors["enter_norm"], config.eps), layer.enter)
            both, value, gate = torch.split(entered, widths, dim=-1)
            both = both.reshape(-1, turned, config.head_dim)  # queries and keys
            if config.qk_norm:
                both = rms_norm(both, layer.tensors["head_norm"], config.eps)
            query, key = torch.split(rotate(both, cos, sin), [heads, config.kv_heads], dim=1)
            return query, key, value.reshape(-1, config.kv_heads, config.head_dim), gate.sigmoid()

        def finish(seen: Tensor, gate: Tensor) -> tuple[Tensor]:
            seen = seen.flatten(1)
            return (linear(seen * gate if config.output_gate else seen, layer.leave),)

        query, key, value, gate = self.tiling.run(project, x, layout.cos, layout.sin)
        view = layout.views[stream.window]
        pages = store.pages.find([span.memory.tables[stream.name] for span in layout.spans], view)
        store.pages.write(stream, pages, view, key, value)
        parts = view.parts(*store.pages.gather(stream, pages, view))
        return self.tiling.run(finish, layout.rows.attend(self.attention, query, parts), gate)[0]

    def _recur(self, index: int, layer: Layer, x: Tensor, layout: Layout, store: Store) -> Tensor:
        config, net, replay = self.config, self.config.delta_net, layout.replay
        assert net is not None and replay is not None
        key_heads, group = net.key_heads, net.value_heads // net.key_heads
        keys, values = key_heads * net.key_dim, net.value_heads * net.value_dim
        widths = [net.channels, values, 2 * net.value_heads]

        def project(x: Tensor) -> tuple[Tensor, ...]:
            entered = linear(rms_norm(x, layer.tensors["enter_norm"], config.eps), layer.enter)
            mixed, z, gates = torch.split(entered, widths, dim=-1)
            gates = wide(gates) + layer.tensors["bias"]  # b and a: [16, 2 value_heads], so that no lane is left over
            beta, decay = gates.sigmoid(), (softplus(gates) * layer.tensors["rate"]).exp()
            return mixed, silu(wide(z)), decay[:, net.value_heads :], beta[:, : net.value_heads]

        def heads(convolved: Tensor) -> tuple[Tensor, ...]:
            both, value = torch.split(silu(convolved), [2 * keys, values], dim=-1)
            both = both.reshape(-1, 2, key_heads, 1, net.key_dim)  # queries and keys
            both = (both * shrink(both, 1e-6)).expand(-1, -1, -1, group, -1).flatten(2, 3)
            return both[:, 0] * net.key_dim**-0.5, both[:, 1], value.reshape(-1, net.value_heads, net.value_dim)

        def finish(seen: Tensor, gate: Tensor) -> tuple[Tensor]:
            gated = rms_norm(seen, layer.tensors["leave_norm"], config.eps).flatten(1) * gate
            return (linear(narrow(gated, x.dtype), layer.leave),)

        mixed, gate, decay, beta = self.tiling.run(project, x)
        states, histories, kept = store.slots.load(index, replay)
        rows = torch.cat([histories, kept[:, : net.channels], mixed])
        query, key, value = self.tiling.run(heads, convolve(rows[replay.taps], layer.tensors["taps"]))
        new = Inputs(mixed, key, value, decay, beta).rows()
        inputs = torch.cat([kept, new]) if len(kept) else new
        seen = recur(states, query, inputs, net, replay, partial(store.slots.keep, index))
        store.slots.store(index, rows[replay.tails], new, replay)
        return self.tiling.run(finish, seen, gate)[0]


def load_target(
    checkpoint: Checkpoint[TargetConfig],
    dtype: torch.dtype,
    taps: tuple[int, ...],
    tiling: Tiling = TILED,
    attention: Attention = attend,
) -> Transformer:
    """Decode every weight of an accounted checkpoint once."""
    config, wide = checkpoint.config, wide_dtype(dtype)
    embedding = checkpoint.read(f"{config.prefix}embed_tokens.weight")
    gain = checkpoint.read(f"{config.prefix}norm.weight").to(wide)
    return Transformer(
        config,
        dtype,
        embedding,
        tuple(read_layer(checkpoint, index, dtype) for index in range(config.layers)),
        gain_of(1 + gain if config.norm_plus_one else gain),
        Linear(embedding.to(dtype).to(wide).T.contiguous())
        if config.tied
        else read_linear(checkpoint, "lm_head", dtype),
        Turns.of(config.max_context, config.rotary_dim, config.rope_theta, wide),
        taps,
        tiling,
        attention,
    )
