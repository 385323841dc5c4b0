"""The DFlash family: one masked block per sample over a context of projected target features, in the page pool.

A layer is a Qwen3 layer with two kinds of keys and values: context rows, made once from the features of committed
tokens and kept in pages, and the block's own rows, which nobody keeps. DFlash 2 wraps each sublayer in a convolution
over the block's rows. A block holds the anchor and as many mask tokens as drafts are wanted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specqual.contract import Method, Proposal, Sampling
from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import LayerType
from specqual.contract.draft import DraftConfig
from specqual.contract.schema import draft_linears

from .arithmetic import Linear, Turns, linear, mlp, rms_norm, rotate, wide, wide_dtype
from .attention import KEYS, attend, pieces
from .choice import Scores, best_ids, walk
from .memory import Memory, Store
from .pages import Stream
from .propose import Ask
from .target import Transformer
from .tile import TILE, padded, tiled
from .weights import read_linear


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of several blocks behind each other: where each lies, where its anchor stands, who owns its context."""

    places: tuple[slice, ...]
    starts: tuple[int, ...]
    memories: tuple[Memory, ...]
    slots: Tensor  # [R], the place of each row within its block
    positions: Tensor  # [R]


@dataclass(frozen=True, slots=True)
class BlockDrafter:
    """A drafter that borrows embedding and head of its target; its modules by schema name."""

    config: DraftConfig
    target: Transformer
    linears: Mapping[str, Linear]
    tensors: Mapping[str, Tensor]
    turns: Turns

    @property
    def method(self) -> Method:
        return self.config.method

    @property
    def draft_length(self) -> int:
        return self.config.draft_length

    @property
    def streams(self) -> tuple[Stream, ...]:
        config = self.config
        return tuple(
            Stream(f"draft.{i}", config.kv_heads, config.head_dim, config.window if kind is LayerType.SLIDING else None)
            for i, kind in enumerate(config.layer_types)
        )

    @torch.inference_mode()
    def ingest(
        self, memories: Sequence[Memory], starts: Sequence[int], features: Sequence[Tensor], store: Store
    ) -> None:
        """Turn features of committed tokens, [n, taps * H] per sample, into context rows of every layer."""
        lengths = [len(rows) for rows in features]
        positions = torch.cat([torch.arange(start, start + n) for start, n in zip(starts, lengths, strict=True)])
        cos, sin = self.turns.at(padded(positions))
        eps = self.config.eps

        def project(rows: Tensor) -> tuple[Tensor]:
            return (rms_norm(linear(rows, self.linears["fc"]), self.tensors["hidden_norm.weight"], eps),)

        (context,) = tiled(project, padded(torch.cat(list(features))))
        for layer, stream in enumerate(self.streams):

            def keys_values(rows: Tensor, cos: Tensor, sin: Tensor, layer: int = layer) -> tuple[Tensor, ...]:
                return self._keys_values(layer, rows, cos, sin)

            key, value = tiled(keys_values, context, cos, sin)
            done = 0
            for memory, start, length in zip(memories, starts, lengths, strict=True):
                rows = slice(done, done + length)
                store.extend(memory, (stream,), start + length)
                store.pages.write(stream, memory.tables[stream.name], start, key[rows], value[rows])
                done += length

    @torch.inference_mode()
    def propose(self, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        """One block pass for all asks; no draft stands beyond the drafter's own context.

        Greedy claims no q. Else q follows from a slot's logits by the request's filters, and with a selector or a
        Markov head from softmax(score / temperature) alone.
        """
        config = self.config
        lengths = [max(0, min(ask.most, config.max_context - len(ask.tokens))) for ask in asks]
        wanted = [(ask, length) for ask, length in zip(asks, lengths, strict=True) if length]
        if not wanted:
            return [Proposal.certain(())] * len(asks)
        hidden = self._run(wanted, store)
        (logits,) = tiled(lambda x: (self._logits(x),), padded(torch.cat(hidden)))
        joint = self._joint(padded(torch.cat(hidden)))
        done, proposals = 0, list[Proposal]()
        for ask, length in wanted:
            rows = slice(done, done + length)
            scores = self._scores(logits[rows].double().numpy(), joint[rows], ask.selector)
            plain = not (config.selector is not None and ask.selector) and config.markov_rank is None
            law = ask.sampling if plain else Sampling(temperature=ask.sampling.temperature)
            proposals.append(walk(ask.tokens[-1], length, scores, law, ask.uniform))
            done += length
        found = iter(proposals)
        return [next(found) if length else Proposal.certain(()) for length in lengths]

    def _run(self, wanted: Sequence[tuple[Ask, int]], store: Store) -> list[Tensor]:
        """The final-normed states [length, H] that predict the positions behind each anchor."""
        config, ids, places = self.config, list[int](), list[slice]()
        for ask, length in wanted:
            masks = length - 1 if config.sample_from_anchor else length
            places.append(slice(len(ids), len(ids) + 1 + masks))
            ids += [ask.tokens[-1], *[config.mask_token_id] * masks]
        starts = tuple(len(ask.tokens) - 1 for ask, _ in wanted)
        slots = torch.cat([torch.arange(place.stop - place.start) for place in places])
        positions = torch.cat([torch.arange(s, s + p.stop - p.start) for s, p in zip(starts, places, strict=True)])
        memories = tuple(ask.memory for ask, _ in wanted)
        block = Block(tuple(places), starts, memories, padded(slots), padded(positions))
        x = padded(self.target.embed(ids) * config.input_scale)
        for layer in range(config.layers):
            x = self._layer(layer, x, block, store)
        (x,) = tiled(lambda x: (rms_norm(x, self.tensors["norm.weight"], config.eps),), x)
        return [x[place.stop - length : place.stop] for place, (_, length) in zip(places, wanted, strict=True)]

    def _layer(self, layer: int, x: Tensor, block: Block, store: Store) -> Tensor:
        name = f"layers.{layer}"

        def mix(x: Tensor) -> Tensor:
            return self._attend(layer, x, block, store)

        def widen(x: Tensor) -> Tensor:
            return tiled(lambda x: (mlp(x, self.linears, f"{name}.mlp"),), x)[0]

        x = x + self._convolved(f"{name}.attention_conv", self._norm(f"{name}.input_layernorm", x), block, mix)
        normed = self._norm(f"{name}.post_attention_layernorm", x)
        return x + self._convolved(f"{name}.mlp_conv", normed, block, widen)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return tiled(lambda x: (rms_norm(x, self.tensors[f"{name}.weight"], self.config.eps),), x)[0]

    def _convolved(self, name: str, x: Tensor, block: Block, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """A sublayer between its two convolutions, whose coefficients come from the normed input alone."""
        convolution = self.config.convolution
        if convolution is None:
            return sublayer(x)
        (projected,) = tiled(lambda x: (linear(x, self.linears[f"{name}.kernel_projection"]),), x)
        dynamic = projected.reshape(len(x), 2, convolution.kernel, -1)
        base = self.tensors[f"{name}.base_kernel"]
        x = sublayer(convolve(x, dynamic[:, 0], base[0], block.slots))
        return convolve(x, dynamic[:, 1], base[1], block.slots)

    def _keys_values(self, layer: int, rows: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        name, heads = f"layers.{layer}.self_attn", (TILE, self.config.kv_heads, self.config.head_dim)
        key = linear(rows, self.linears[f"{name}.k_proj"]).reshape(heads)
        key = rotate(rms_norm(key, self.tensors[f"{name}.k_norm.weight"], self.config.eps), cos, sin)
        return key, linear(rows, self.linears[f"{name}.v_proj"]).reshape(heads)

    def _attend(self, layer: int, x: Tensor, block: Block, store: Store) -> Tensor:
        config, stream, name = self.config, self.streams[layer], f"layers.{layer}.self_attn"

        def project(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            query = linear(x, self.linears[f"{name}.q_proj"]).reshape(TILE, config.heads, config.head_dim)
            query = rotate(rms_norm(query, self.tensors[f"{name}.q_norm.weight"], config.eps), cos, sin)
            return query, *self._keys_values(layer, x, cos, sin)

        query, key, value = tiled(project, x, *self.turns.at(block.positions))
        seen = torch.zeros_like(query)
        for place, start, memory in zip(block.places, block.starts, block.memories, strict=True):
            first, old_key, old_value = store.pages.read(stream, memory.tables[stream.name], stream.first(start), start)
            old = torch.arange(first, first + len(old_key))
            own_key, own_value = (whole(side[place]) for side in (key, value))
            own = torch.arange(start, start + len(own_key))
            known = torch.cat([old < start, own < start + place.stop - place.start])
            keys, all_keys, all_values = (
                torch.cat([old, own]),
                torch.cat([old_key, own_key.to(old_key.dtype)]),
                torch.cat([old_value, own_value.to(old_value.dtype)]),
            )
            for row in range(place.start, place.stop, TILE):
                rows = slice(row, min(place.stop, row + TILE))
                at = start + row - place.start
                distance = torch.arange(at, at + TILE)[:, None] - keys
                visible = known & (distance >= 0) if config.is_causal else known.expand(TILE, -1)
                if stream.window is not None:
                    visible = visible & (distance.abs() < stream.window)
                parts = pieces(all_keys, all_values, visible)
                seen[rows] = attend(padded(query[rows]), parts, config.kv_heads)[: rows.stop - rows.start]
        return tiled(lambda seen: (linear(seen.flatten(1), self.linears[f"{name}.o_proj"]),), seen)[0]

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits [16, V] of one tile, through the target's head."""
        logits = self.target.head(hidden) * self.config.output_multiplier
        cap = self.config.softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _joint(self, hidden: Tensor) -> Tensor:
        if self.config.selector is None:
            return hidden
        return tiled(lambda x: (linear(wide(x), self.linears["candidate_selector.hidden_projection"]),), hidden)[0]

    def _scores(self, logits: np.ndarray, joint: Tensor, select: bool) -> Scores:
        """What may stand in each slot of one block, and how good it is behind a given token."""
        selector, tensors = self.config.selector, self.tensors
        everything = np.arange(self.config.vocab_size)
        if selector is not None and select:
            before, after = (tensors[f"candidate_selector.{side}_codebook"] for side in ("predecessor", "successor"))
            ids = [best_ids(row, selector.top_k) for row in logits]
            return lambda slot, token: (
                ids[slot],
                logits[slot, ids[slot]] + (after[ids[slot]] * (before[token] * joint[slot])).sum(-1).double().numpy(),
            )
        if self.config.markov_rank is not None:
            w1, w2 = (tensors[f"markov_head.markov_w{factor}.weight"] for factor in (1, 2))
            return lambda slot, token: (everything, logits[slot] + (w2 * w1[token]).sum(-1).double().numpy())
        return lambda slot, token: (everything, logits[slot].copy())


def whole(rows: Tensor) -> Tensor:
    """Rows [n, ...] with zeros up to the next multiple of 64, as pieces of attention want them."""
    return torch.cat([rows, rows.new_zeros(-len(rows) % KEYS, *rows.shape[1:])])


def convolve(z: Tensor, dynamic: Tensor, base: Tensor, slots: Tensor) -> Tensor:
    """The grouped dynamic causal convolution over the rows of several blocks, z [R, H] -> [R, H].

    Row i, channel c is the sum over taps t of (base[t, c] + dynamic[i, t, group of c]) * z[i - t, c], and nothing
    enters a block from in front of its first row. `base` [taps, H], `dynamic` [R, taps, groups], `slots` [R].
    """
    kernel = base + wide(dynamic).repeat_interleave(base.shape[1] // dynamic.shape[2], dim=2)
    exact = wide(z)
    total = kernel[:, 0] * exact
    for tap in range(1, len(base)):
        earlier = torch.where((slots >= tap)[:, None], exact.roll(tap, 0), 0.0)
        total = total + kernel[:, tap] * earlier
    return total.to(z.dtype)


def load_drafter(checkpoint: Checkpoint[DraftConfig], target: Transformer) -> BlockDrafter:
    """Decode every weight of an accounted drafter checkpoint once, in its target's dtype."""
    config, dtype = checkpoint.config, target.dtype
    modules = draft_linears(config)
    others = [name for name in checkpoint.tensors if name.rpartition(".")[0] not in modules]
    exact = wide_dtype(dtype)
    return BlockDrafter(
        config,
        target,
        {name: read_linear(checkpoint, name, dtype) for name in modules},
        {name: checkpoint.read(name).to(exact) for name in others},
        Turns.of(target.config.max_context + config.block_size, config.head_dim, config.rope_theta, exact),
    )
