"""The target on the device: one pass over the spans of a whole batch, every cached row in the pools.

No sum depends on how many rows there are or where they lie (each kernel says how), so a pass of many spans, a span cut
in two, and a lone row give the same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType, TargetConfig

from ..memory import Store
from ..pages import Stream
from ..span import Pass, Span
from ..streams import target_streams
from ..weights import kv_scales
from .attention import attention
from .attention_backends import Attention
from .carry import picked
from .embedding import embed
from .graphs import Passes
from .heads import Turns
from .layers import Layer, attend, read_layer, recur, widen
from .modules import Module, Stored, module_of
from .norm import rms_norm
from .pools import DeviceSlots
from .rounds import Piece, Told


@dataclass(frozen=True, slots=True)
class DeviceTarget:
    """A Llama, Qwen3 or Qwen3.5 target. `taps` are the layers whose output a drafter reads, in its order."""

    config: TargetConfig
    dtype: torch.dtype
    device: torch.device
    embedding: Tensor  # [V, H]
    layers: tuple[Layer, ...]
    gain: Tensor  # [H] float32, of the final norm
    output: Module
    turns: Turns
    streams: tuple[Stream, ...]
    passes: Passes
    taps: tuple[int, ...] = ()
    attention: Attention = attention

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.config.eos_ids

    @property
    def max_context(self) -> int:
        return self.config.max_context

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        """Run all spans at once; those that mark a state within them are run up to there first. Padding rows, of which
        `rows` tells, would change nothing here, and there are none."""
        fronts, rest = list[tuple[int, Piece]](), list[tuple[int, Piece]]()
        for place, span in enumerate(spans):
            piece = Piece(span.memory, span.new, span.start, span.start - span.memory.kept, span.certain)
            if span.mark is not None and span.mark[0] < span.end:
                cut = span.mark[0] - span.start
                fronts.append((place, piece._replace(ids=piece.ids[:cut], certain=cut)))
                start = span.mark[0]
                piece = piece._replace(ids=piece.ids[cut:], start=start, boundary=start, certain=span.certain - cut)
            rest.append((place, piece))
        features: list[list[Tensor]] = [[] for _ in spans]
        for wave, last in ((fronts, False), (rest, True)):
            if not wave:
                continue
            x, found = self._run([piece for _, piece in wave], store)
            parts = torch.split(found, [len(piece.ids) for _, piece in wave])
            for (place, piece), part in zip(wave, parts, strict=True):
                features[place].append(part)
                mark = spans[place].mark
                if mark is not None and piece.start < mark[0] == piece.start + piece.certain:
                    store.slots.copy(piece.memory.slot or 0, mark[1])
            if last:
                logits = self._judge(x, spans, [piece for _, piece in wave])
        return Pass(logits, tuple(torch.cat(parts) if len(parts) > 1 else parts[0] for parts in features))

    def _run(self, pieces: Sequence[Piece], store: Store) -> tuple[Tensor, Tensor]:
        """The final-normed rows [R, H] of all pieces, and their features [R, taps * H]."""
        normed, features = self.passes.run("target", partial(self.through, store), pieces, self.streams, store)
        return normed, features

    def through(self, store: Store, there: Told) -> tuple[Tensor, Tensor]:
        """The same of what the device was told."""
        x, change, tapped = embed(there.ids, self.embedding), None, dict[int, Tensor]()
        for layer in self.layers:
            normed, x = rms_norm(x, layer.tensors["enter_norm"], self.config.eps, change)
            self._tap(tapped, layer.index - 1, x)
            normed, x = rms_norm(x, layer.tensors["mlp_norm"], self.config.eps, self._mix(layer, normed, there, store))
            change = widen(layer, normed)
        normed, x = rms_norm(x, self.gain, self.config.eps, change)
        self._tap(tapped, len(self.layers) - 1, x)
        return normed, torch.cat([tapped[tap] for tap in self.taps], dim=1) if self.taps else x[:, :0]

    def _tap(self, tapped: dict[int, Tensor], layer: int, x: Tensor) -> None:
        """Keep what a drafter reads, and let all else go."""
        if layer in self.taps:
            tapped[layer] = x

    def _mix(self, layer: Layer, x: Tensor, there: Told, store: Store) -> Tensor:
        if layer.kind is LayerType.LINEAR:
            assert isinstance(store.slots, DeviceSlots)
            return recur(self.config, layer, x, there, store.slots)
        return attend(self.config, self.turns, self.attention, layer, x, there, store)

    def _judge(self, x: Tensor, spans: Sequence[Span], pieces: Sequence[Piece]) -> tuple[Tensor, ...]:
        """Logits [judged, V] float32 of the last rows of each piece, behind each other."""
        rows, end, counts = list[int](), 0, [span.judged for span in spans]
        for piece, count in zip(pieces, counts, strict=True):
            end += len(piece.ids)
            rows += range(end - count, end)
        if not rows:
            return tuple(torch.zeros(0, self.vocab_size) for _ in spans)
        return torch.split(self.head(picked(x, rows)), counts)

    def head(self, normed: Tensor) -> Tensor:
        """Logits [R, V] float32 of normed rows."""
        return self.output(normed, torch.float32)


def load_target(
    checkpoint: Checkpoint[TargetConfig],
    dtype: torch.dtype,
    taps: tuple[int, ...],
    device: torch.device,
    attention: Attention = attention,
) -> DeviceTarget:
    """Lay out every weight of an accounted checkpoint once, in the format that it is stored in."""
    config = checkpoint.config
    embedding = checkpoint.read(f"{config.prefix}embed_tokens.weight").to(device, dtype)
    gain = checkpoint.read(f"{config.prefix}norm.weight").float().to(device)
    layers = tuple(read_layer(checkpoint, index, dtype, device) for index in range(config.layers))
    output = Module(embedding, None) if config.tied else module_of([Stored.read(checkpoint, "lm_head")], dtype, device)
    turns = turns_of(config.max_context, config.rotary_dim, config.rope_theta, device)
    streams = target_streams(config, dtype, partial(kv_scales, checkpoint))
    gain = gain + 1 if config.norm_plus_one else gain
    passes = Passes(device)
    return DeviceTarget(config, dtype, device, embedding, layers, gain, output, turns, streams, passes, taps, attention)


def turns_of(positions: int, rotary_dim: int, theta: float, device: torch.device) -> Turns:
    """Cosines and sines of every position, computed in float64 and rounded once."""
    made = Turns.of(positions, rotary_dim, theta, torch.float32)
    return Turns(made.cos.to(device), made.sin.to(device))
