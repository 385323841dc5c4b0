"""The DFlash family: one masked block per sample over a context of projected target features, in the page pool.

A layer is a Qwen3 layer with two kinds of keys and values: context rows, made once from the features of committed
tokens and kept in pages, and the block's own rows, which nobody keeps. DFlash 2 wraps each sublayer in a convolution
over the block's rows. A block holds the anchor and as many mask tokens as drafts are wanted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specqual.contract import Method, Proposal
from specqual.contract.checkpoint import Checkpoint
from specqual.contract.draft import DraftConfig
from specqual.contract.schema import draft_linears

from .arithmetic import Linear, Turns, fused, gain_of, linear, mlp, rms_norm, rotate, wide, wide_dtype
from .attention import KEYS, Part
from .drafts import block_of, lengths_of, proposals
from .memory import Memory, Store
from .pages import Stream
from .propose import Ask
from .streams import draft_streams
from .target import Transformer
from .view import Rows, View, mask_of, rows_of, view_of, visible
from .weights import read_linear


@dataclass(frozen=True, slots=True)
class DraftLayer:
    """A drafter layer as its kernels want it; the convolutions around a sublayer by its name, if there are any."""

    qkv: Linear
    leave: Linear
    gate_up: Linear
    down: Linear
    head_norm: Tensor  # [heads + kv_heads, d]
    kernels: Mapping[str, Linear]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of several blocks behind each other: where each lies and stands, and what its queries see."""

    rows: Rows
    cos: Tensor  # [R, 1, rotary_dim / 2]
    sin: Tensor
    slots: Tensor  # [R], the place of each row within its block
    memories: Sequence[Memory]
    contexts: Mapping[int | None, View]  # by window
    own: Tensor  # [n, S], the rows of each block, and one row of zeros behind them up to whole pieces
    masks: Mapping[int | None, tuple[Tensor, ...]]  # of each eight on its own block's rows


@dataclass(frozen=True, slots=True)
class BlockDrafter:
    """A drafter that borrows embedding, head, tiling and attention of its target; other tensors by schema name.

    `context` makes the keys and values of all layers from the projected features of a token, `context_norm` [layers,
    kv_heads, d] are the gains of those keys.
    """

    config: DraftConfig
    target: Transformer
    project: Linear
    context: Linear
    context_norm: Tensor
    layers: tuple[DraftLayer, ...]
    selector: Linear | None
    tensors: Mapping[str, Tensor]
    turns: Turns

    @property
    def method(self) -> Method:
        return self.config.method

    @property
    def draft_length(self) -> int:
        return self.config.draft_length

    @property
    def longest_product(self) -> int:
        """The most inputs of any linear module."""
        modules = (module for layer in self.layers for module in (layer.leave, layer.down))
        return max(len(module.weight) for module in (self.project, *modules))

    @property
    def streams(self) -> tuple[Stream, ...]:
        return draft_streams(self.config, self.target.dtype)

    @torch.inference_mode()
    def ingest(
        self, memories: Sequence[Memory], starts: Sequence[int], features: Sequence[Tensor], store: Store
    ) -> None:
        """Turn features of committed tokens, [n, taps * H] per sample, into context rows of every layer."""
        config, tiling, places, end = self.config, self.target.tiling, list[slice](), 0
        for rows in features:
            places.append(slice(end, end + len(rows)))
            end += len(rows)
        ends = [start + len(rows) for start, rows in zip(starts, features, strict=True)]
        laid = rows_of(places, starts, end)
        view = view_of(laid, starts, ends, None)

        def kernel(rows: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            projected = rms_norm(linear(rows, self.project), self.tensors["hidden_norm.weight"], config.eps)
            sides = linear(projected, self.context).view(-1, config.layers, 2, config.kv_heads, config.head_dim)
            key, value = sides.unbind(2)  # [16, layers, kv_heads, d]
            key = rms_norm(key, self.context_norm, config.eps).flatten(1, 2)
            return rotate(key, cos, sin).view(value.shape), value

        turns = (tiling.padded(side) for side in self.turns.at(laid.positions, self.target.dtype))
        key, value = tiling.run(kernel, tiling.padded(torch.cat(list(features))), *turns)
        for layer, stream in enumerate(self.streams):
            for memory, length in zip(memories, ends, strict=True):
                store.extend(memory, (stream,), length)
            pages = store.pages.find([memory.tables[stream.name] for memory in memories], view)
            store.pages.write(stream, pages, view, key[:, layer], value[:, layer])

    @torch.inference_mode()
    def propose(self, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        """One block pass for all asks; no draft stands beyond the drafter's own context.

        Greedy claims no q. Else q follows from a slot's logits by the request's filters, and with a selector or a
        Markov head from softmax(score / temperature) alone.
        """
        tiling, lengths = self.target.tiling, lengths_of(self.config, asks)
        wanted = [(ask, length) for ask, length in zip(asks, lengths, strict=True) if length]
        if not wanted:
            return [Proposal.certain(())] * len(asks)
        hidden = tiling.padded(torch.cat(self._run(wanted, store)))
        (logits,) = tiling.run(self._logits, hidden)
        found = iter(proposals(self.config, self.tensors, wanted, logits, self._joint(hidden)))
        return [next(found) if length else Proposal.certain(()) for length in lengths]

    def _run(self, wanted: Sequence[tuple[Ask, int]], store: Store) -> list[Tensor]:
        """The final-normed states [length, H] that predict the positions behind each anchor."""
        config, tiling, ids, places = self.config, self.target.tiling, list[int](), list[slice]()
        for ask, length in wanted:
            begun = len(ids)
            ids += block_of(config, ask.tokens[-1], length)
            places.append(slice(begun, len(ids)))
        block = self._block(places, [ask for ask, _ in wanted])
        x = tiling.padded(self.target.embed(ids) * config.input_scale)
        for index in range(config.layers):
            x = self._layer(index, x, block, store)
        (x,) = tiling.run(lambda x: (rms_norm(x, self.tensors["norm.weight"], config.eps),), x)
        return [x[place.stop - length : place.stop] for place, (_, length) in zip(places, wanted, strict=True)]

    def _block(self, places: Sequence[slice], asks: Sequence[Ask]) -> Block:
        config, count = self.config, self.target.tiling.ceil(places[-1].stop)
        starts = [len(ask.tokens) - 1 for ask in asks]
        rows = rows_of(places, starts, count)
        lengths = torch.tensor([places[i].stop - places[i].start for i in rows.samples])
        slots = torch.arange(-(-int(lengths.max()) // KEYS) * KEYS)
        real = slots < lengths[:, None]
        own = torch.where(real, slots + torch.tensor([places[i].start for i in rows.samples])[:, None], count)
        keys = slots + torch.tensor([starts[i] for i in rows.samples])[:, None]
        contexts, masks = dict[int | None, View](), dict[int | None, tuple[Tensor, ...]]()
        for stream in self.streams:
            window, causal = stream.window, config.is_causal
            if window not in contexts:
                firsts = [stream.first(start) for start in starts]
                contexts[window] = view_of(rows, firsts, starts, window, causal=causal)
                masks[window] = tuple(
                    mask_of(
                        visible(rows.positions[eight], keys[: len(eight)], window, causal=causal)
                        & real[: len(eight), None]
                    )
                    for eight in rows.eights
                )
        at = rows.positions - torch.tensor(starts).repeat_interleave(torch.tensor([p.stop - p.start for p in places]))
        cos, sin = (self.target.tiling.padded(side) for side in self.turns.at(rows.positions, self.target.dtype))
        return Block(rows, cos, sin, self.target.tiling.padded(at), [ask.memory for ask in asks], contexts, own, masks)

    def _layer(self, index: int, x: Tensor, block: Block, store: Store) -> Tensor:
        layer, tiling = self.layers[index], self.target.tiling

        def mix(x: Tensor) -> Tensor:
            return self._attend(index, x, block, store)

        def widen(x: Tensor) -> Tensor:
            return tiling.run(lambda x: (mlp(x, layer.gate_up, layer.down),), x)[0]

        x = x + self._convolved(layer, "attention", x, block, mix)
        return x + self._convolved(layer, "mlp", x, block, widen)

    def _convolved(
        self, layer: DraftLayer, name: str, x: Tensor, block: Block, sublayer: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """A norm, and a sublayer between its two convolutions, whose coefficients come from the normed input alone."""
        gain, convolution, tiling = layer.tensors[f"{name}_norm"], self.config.convolution, self.target.tiling
        if convolution is None:
            return sublayer(tiling.run(lambda x: (rms_norm(x, gain, self.config.eps),), x)[0])

        def kernel(x: Tensor) -> tuple[Tensor, ...]:
            normed = rms_norm(x, gain, self.config.eps)
            return normed, linear(normed, layer.kernels[name])

        normed, dynamic = tiling.run(kernel, x)
        dynamic = dynamic.view(len(x), 2, convolution.kernel, -1)
        before, after = layer.tensors[f"{name}_base"]
        x = sublayer(convolve(normed, dynamic[:, 0], before, block.slots))
        return convolve(x, dynamic[:, 1], after, block.slots)

    def _projected(self, index: int, x: Tensor, block: Block) -> tuple[Tensor, ...]:
        """Queries [R, heads, d], and the block's own keys and values [R, kv_heads, d]."""
        layer, heads, kv_heads = self.layers[index], self.config.heads, self.config.kv_heads

        def kernel(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            joint = linear(x, layer.qkv).view(len(x), -1, self.config.head_dim)
            both = rotate(rms_norm(joint[:, : heads + kv_heads], layer.head_norm, self.config.eps), cos, sin)
            return both[:, :heads], both[:, heads:], joint[:, heads + kv_heads :]

        return self.target.tiling.run(kernel, x, block.cos, block.sin)

    def _attend(self, index: int, x: Tensor, block: Block, store: Store) -> Tensor:
        config, stream, tiling, layer = self.config, self.streams[index], self.target.tiling, self.layers[index]
        query, key, value = self._projected(index, x, block)
        view = block.contexts[stream.window]
        pages = store.pages.find([memory.tables[stream.name] for memory in block.memories], view)
        cached = view.parts(*store.pages.gather(stream, pages, view))
        nothing = key.new_zeros(1, config.kv_heads, config.head_dim)
        own_key, own_value = (
            torch.unflatten(wide(torch.cat([side, nothing]))[block.own], 1, (-1, KEYS)).transpose(2, 3)
            for side in (key, value)
        )  # [n, pieces, kv_heads, 64, d]
        own = ([Part(own_key[: len(mask)], own_value[: len(mask)], mask)] for mask in block.masks[stream.window])
        parts = [[*context, *piece] for context, piece in zip(cached, own, strict=True)]
        seen = block.rows.attend(self.target.attention, query, parts)
        return tiling.run(lambda seen: (linear(seen.flatten(1), layer.leave),), seen)[0]

    def _logits(self, hidden: Tensor) -> tuple[Tensor]:
        """Logits [16, V] of one tile, through the target's head."""
        logits = self.target.head(hidden) * self.config.output_multiplier
        cap = self.config.softcap
        return (logits if cap is None else torch.tanh(logits / cap) * cap,)

    def _joint(self, hidden: Tensor) -> Tensor:
        """What the selector joins with the codes of two tokens, [R, rank]."""
        selector = self.selector
        if selector is None:
            return hidden
        return self.target.tiling.run(lambda x: (linear(wide(x), selector),), hidden)[0]


def convolve(z: Tensor, dynamic: Tensor, base: Tensor, slots: Tensor) -> Tensor:
    """The grouped dynamic causal convolution over the rows of several blocks, z [R, H] -> [R, H].

    Row i, channel c is the sum over taps t of (base[t, c] + dynamic[i, t, group of c]) * z[i - t, c], and nothing
    enters a block from in front of its first row. `base` [taps, groups, size], `dynamic` [R, taps, groups], `slots`
    [R].
    """
    kernel = (base + wide(dynamic)[..., None]).flatten(2)
    exact = wide(z)
    total = kernel[:, 0] * exact
    for tap in range(1, len(base)):
        total += kernel[:, tap] * exact.roll(tap, 0).masked_fill_((slots < tap)[:, None], 0.0)
    return total.to(z.dtype)


def load_drafter(checkpoint: Checkpoint[DraftConfig], target: Transformer) -> BlockDrafter:
    """Decode every weight of an accounted drafter checkpoint once, in its target's dtype."""
    config, dtype = checkpoint.config, target.dtype
    modules = {name: read_linear(checkpoint, name, dtype) for name in draft_linears(config)}
    others = [name for name in checkpoint.tensors if name.rpartition(".")[0] not in modules]
    exact = wide_dtype(dtype)
    tensors = {name: checkpoint.read(name).to(exact) for name in others}
    tensors = {name: gain_of(x) if name.endswith("norm.weight") else x for name, x in tensors.items()}
    names = [f"layers.{i}.self_attn.{side}_proj" for i in range(config.layers) for side in "kv"]
    layers = tuple(_layer_of(config, f"layers.{i}", modules, tensors) for i in range(config.layers))
    return BlockDrafter(
        config,
        target,
        modules["fc"],
        fused([modules[name] for name in names]),
        torch.stack([layer.head_norm[config.heads :] for layer in layers]),
        layers,
        modules.get("candidate_selector.hidden_projection"),
        tensors,
        Turns.of(target.config.max_context + config.block_size, config.head_dim, config.rope_theta, exact),
    )


def _layer_of(
    config: DraftConfig, name: str, modules: Mapping[str, Linear], tensors: Mapping[str, Tensor]
) -> DraftLayer:
    query_gain, key_gain = (tensors[f"{name}.self_attn.{side}_norm.weight"] for side in "qk")
    found, convolution = dict[str, Tensor](), config.convolution
    for sublayer, norm in (("attention", "input_layernorm"), ("mlp", "post_attention_layernorm")):
        found[f"{sublayer}_norm"] = tensors[f"{name}.{norm}.weight"]
        if convolution is not None:
            base = tensors[f"{name}.{sublayer}_conv.base_kernel"]
            found[f"{sublayer}_base"] = base.view(2, convolution.kernel, -1, convolution.group)
    return DraftLayer(
        fused([modules[f"{name}.self_attn.{side}_proj"] for side in "qkv"]),
        modules[f"{name}.self_attn.o_proj"],
        fused([modules[f"{name}.mlp.{side}_proj"] for side in ("gate", "up")]),
        modules[f"{name}.mlp.down_proj"],
        torch.stack([query_gain] * config.heads + [key_gain] * config.kv_heads),
        {
            sublayer: modules[f"{name}.{sublayer}_conv.kernel_projection"]
            for sublayer in ("attention", "mlp")
            if convolution is not None
        },
        found,
    )
