"""The DFlash family on the device: one masked block per sample over a context of projected target features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specqual.contract import Method, Proposal
from specqual.contract.checkpoint import Checkpoint
from specqual.contract.draft import DraftConfig

from ..drafts import block_of, lengths_of
from ..drafts import proposals as on_the_host
from ..memory import Memory, Store
from ..pages import Stream
from ..propose import Ask
from ..streams import draft_streams
from .block_convolution import block_convolution
from .carry import picked
from .embedding import embed
from .gated import silu_mul
from .heads import Turns, heads
from .layers import place_of
from .modules import Module, Siblings, Stored, module_of
from .norm import rms_norm
from .rounds import Piece, Told
from .target import DeviceTarget, turns_of
from .verdict import Drafted
from .walks import Codes, Walks, Way, blocks_of, likeliest, proposals, walked, walks_of


@dataclass(frozen=True, slots=True)
class DraftLayer:
    """One layer; the convolutions around a sublayer by its name, if there are any."""

    name: str
    enter: Siblings
    leave: Module
    gate_up: Module
    down: Module
    kernels: Mapping[str, Module]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class DeviceDrafter:
    """A drafter that borrows embedding and head of its target.

    Drafts are chosen on the device where a few candidates, or one, are enough: by a selector, and greedily by a plain
    drafter. A plain drafter's sampled q is a law over the whole vocabulary, and a Markov head scores all of it behind
    every draft: those walks are the host's, with `markov` there.
    """

    config: DraftConfig
    target: DeviceTarget
    project: Module
    context: Siblings  # key and value of all layers
    hidden_gain: Tensor
    gain: Tensor
    layers: tuple[DraftLayer, ...]
    selector: Module | None
    codes: Codes | None  # the selector's
    markov: Mapping[str, Tensor]
    turns: Turns
    streams: tuple[Stream, ...]

    @property
    def method(self) -> Method:
        return self.config.method

    @property
    def draft_length(self) -> int:
        return self.config.draft_length

    @torch.inference_mode()
    def ingest(
        self, memories: Sequence[Memory], starts: Sequence[int], features: Sequence[Tensor], store: Store
    ) -> None:
        """Turn features of committed tokens, [n, taps * H] per sample, into context rows of every layer."""
        pieces = list[Piece]()
        for memory, start, rows in zip(memories, starts, features, strict=True):
            store.extend(memory, self.streams, start + len(rows))
            pieces.append(Piece(memory, (0,) * len(rows), start, start, 0))
        given = torch.cat(list(features))
        self.target.passes.run("ingest", partial(self.remember, store), pieces, self.streams, store, given)

    def remember(self, store: Store, there: Told, features: Tensor) -> tuple[()]:
        """Write the context rows of features [R, taps * H]."""
        config = self.config
        projected, _ = rms_norm(self.project(features), self.hidden_gain, config.eps)
        sides = iter(self.context(projected))
        for layer in self.layers:
            gain = layer.tensors["key_norm"]
            heads(
                None,
                next(sides),
                next(sides),
                (gain, gain),
                self.turns,
                config.eps,
                there.spans,
                most=there.most,
                depth=config.head_dim,
                place=place_of(store.pages, layer.name, there),
            )
        return ()

    @torch.inference_mode()
    def propose(self, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        """One block pass for all asks; no draft stands beyond the drafter's own context.

        Blocks are laid out as if each had as many slots as the longest, rounded up to a power of two: kernels are
        compiled for few numbers of slots, and what a block has too many of is not looked at.
        """
        lengths = lengths_of(self.config, asks)
        wanted = [(ask, length) for ask, length in zip(asks, lengths, strict=True) if length]
        if not wanted:
            return [Proposal.certain(())] * len(asks)
        slots = min(self.draft_length, 1 << (max(lengths) - 1).bit_length())
        hidden = self._run(wanted, slots, store)
        logits = self.logits(hidden)
        found = dict[int, Proposal]()
        for way in Way:
            places = [place for place, (ask, _) in enumerate(wanted) if self.way(ask) is way]
            if places:
                mine = [wanted[place] for place in places]
                states, scores = (blocks_of(side, places, slots) for side in (hidden, logits))
                found.update(zip(places, self._chosen(way, mine, states, scores, slots), strict=True))
        rest = (found[place] for place in range(len(wanted)))
        return [next(rest) if length else Proposal.certain(()) for length in lengths]

    def way(self, ask: Ask) -> Way:
        """How its drafts are chosen: its own request decides, and whether policies let it have the selector."""
        if self.codes is not None and ask.selector:
            return Way.SELECTOR
        return Way.LIKELIEST if ask.sampling.greedy and not self.markov else Way.HOST

    def draft(self, way: Way, hidden: Tensor, logits: Tensor, walks: Walks) -> Drafted:
        """Drafts of B blocks of K slots that are chosen on the device, from normed states [B K, H] and logits [B K, V].

        Nothing here waits for the device, so that a graph can hold it.
        """
        if way is Way.LIKELIEST:
            return likeliest(logits, walks)
        assert self.selector is not None and self.codes is not None
        return walked(logits, self.selector(hidden, torch.float32), self.codes, walks)

    def _chosen(
        self, way: Way, wanted: Sequence[tuple[Ask, int]], hidden: Tensor, logits: Tensor, slots: int
    ) -> list[Proposal]:
        if way is not Way.HOST:
            walks = walks_of(wanted, slots, logits.device)
            return proposals(self.draft(way, hidden, logits, walks), wanted)
        rows = [logits[place * slots : place * slots + length] for place, (_, length) in enumerate(wanted)]
        return on_the_host(self.config, self.markov, wanted, torch.cat(rows).cpu(), None)

    def logits(self, hidden: Tensor) -> Tensor:
        """What stands in each slot [R, V] float32, from normed states [R, H]."""
        logits = self.target.head(hidden).mul_(self.config.output_multiplier)
        softcap = self.config.softcap
        return logits if softcap is None else logits.div_(softcap).tanh_().mul_(softcap)

    def _run(self, wanted: Sequence[tuple[Ask, int]], slots: int, store: Store) -> Tensor:
        """The final-normed states [B * slots, H] that predict the positions behind each anchor."""
        pieces, rows = self.laid([(ask.memory, ask.tokens[-1], length) for ask, length in wanted], slots)
        (normed,) = self.target.passes.run("block", partial(self.block, store), pieces, self.streams, store)
        return picked(normed, rows)

    def laid(self, wanted: Sequence[tuple[Memory, int, int]], slots: int) -> tuple[list[Piece], list[int]]:
        """The blocks of samples by memory, anchor and number of drafts; and of each block the rows that so many slots
        are read from. Those of slots that it does not have are somebody's, and not looked at."""
        pieces, rows, end = list[Piece](), list[int](), 0
        for memory, anchor, length in wanted:
            ids = block_of(self.config, anchor, length) if length else ()
            pieces.append(Piece(memory, ids, memory.length, memory.length, 0))
            end += len(ids)
            rows += [max(0, min(end - length + slot, end - 1)) for slot in range(slots)]
        return pieces, rows

    def block(self, store: Store, there: Told) -> tuple[Tensor]:
        """The final-normed rows [R, H] of all blocks."""
        x = embed(there.ids, self.target.embedding, self.config.input_scale)
        for layer in self.layers:
            x = self._sublayer(layer, "attention", x, there, store)
            x = self._sublayer(layer, "mlp", x, there, store)
        normed, _ = rms_norm(x, self.gain, self.config.eps)
        return (normed,)

    def _sublayer(self, layer: DraftLayer, name: str, x: Tensor, there: Told, store: Store) -> Tensor:
        """A norm, a sublayer between its two convolutions, if there are any, and the residual sum."""
        normed, _ = rms_norm(x, layer.tensors[f"{name}_norm"], self.config.eps)
        if self.config.convolution is None:
            return x + self._inner(layer, name, normed, there, store)
        taps, first = self.config.convolution.kernel, there.spans.first
        dynamic = layer.kernels[name](normed).view(len(x), 2, taps, -1)
        before, after = layer.tensors[f"{name}_base"]
        entered = block_convolution(normed, dynamic[:, 0], before, first, most=there.most)
        left = self._inner(layer, name, entered, there, store)
        return block_convolution(left, dynamic[:, 1], after, first, most=there.most, residual=x)

    def _inner(self, layer: DraftLayer, name: str, x: Tensor, there: Told, store: Store) -> Tensor:
        if name == "mlp":
            return layer.down(silu_mul(layer.gate_up(x)))
        config, place = self.config, place_of(store.pages, layer.name, there)
        gains = layer.tensors["query_norm"], layer.tensors["key_norm"]
        query, key, value = layer.enter(x)
        query, key, value = heads(
            query,
            key,
            value,
            gains,
            self.turns,
            config.eps,
            there.spans,
            most=there.most,
            depth=config.head_dim,
        )
        seen = self.target.attention(
            query,
            place.cache,
            place.table,
            there.spans,
            most=there.most,
            kv_heads=config.kv_heads,
            window=store.pages.streams[layer.name].window,
            causal=config.is_causal,
            own=(key, value),
        )
        return layer.leave(seen.flatten(1))


def load_drafter(checkpoint: Checkpoint[DraftConfig], target: DeviceTarget) -> DeviceDrafter:
    """Lay out every weight of an accounted drafter checkpoint once."""
    config, dtype, device = checkpoint.config, target.dtype, target.device

    def stored(name: str) -> Stored:
        return Stored.read(checkpoint, name)

    def one(*names: str) -> Module:
        return module_of([stored(name) for name in names], dtype, device)

    def tensor(name: str) -> Tensor:
        return checkpoint.read(name).float().to(device)

    def layer_of(index: int) -> DraftLayer:
        prefix, convolved = f"layers.{index}.", config.convolution is not None
        tensors = {f"{side}_norm": tensor(f"{prefix}self_attn.{side[0]}_norm.weight") for side in ("query", "key")}
        tensors["attention_norm"] = tensor(f"{prefix}input_layernorm.weight")
        tensors["mlp_norm"] = tensor(f"{prefix}post_attention_layernorm.weight")
        sublayers = ("attention", "mlp") if convolved else ()
        tensors |= {f"{name}_base": tensor(f"{prefix}{name}_conv.base_kernel") for name in sublayers}
        return DraftLayer(
            f"draft.{index}",
            Siblings.of([stored(f"{prefix}self_attn.{side}_proj") for side in "qkv"], dtype, device),
            one(f"{prefix}self_attn.o_proj"),
            one(f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"),
            one(f"{prefix}mlp.down_proj"),
            {name: one(f"{prefix}{name}_conv.kernel_projection") for name in sublayers},
            tensors,
        )

    names = [f"layers.{i}.self_attn.{side}_proj" for i in range(config.layers) for side in "kv"]
    selector, codes = None, None
    if config.selector is not None:
        selector = one("candidate_selector.hidden_projection")
        before, after = (
            checkpoint.read(f"candidate_selector.{side}_codebook").to(device) for side in ("predecessor", "successor")
        )
        codes = Codes(before, after, config.selector.top_k)
    return DeviceDrafter(
        config,
        target,
        one("fc"),
        Siblings.of([stored(name) for name in names], dtype, device),
        tensor("hidden_norm.weight"),
        tensor("norm.weight"),
        tuple(layer_of(index) for index in range(config.layers)),
        selector,
        codes,
        {name: checkpoint.read(name).float() for name in checkpoint.tensors if "markov" in name},
        turns_of(target.max_context + config.block_size, config.head_dim, config.rope_theta, device),
        draft_streams(config, dtype),
    )
