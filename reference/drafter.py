"""Drafters: what a round of the reference decoder asks for proposals."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specqual.contract import DraftFormat, Method, Proposal, Sampling
from specqual.contract.checkpoint import open_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.requantised import in_nvfp4
from specqual.contract.schema import draft_linears

from . import markov, selector
from .choice import Array, Scored, Scorer, numbers, walk
from .dflash import BlockModel, block_pass, context_rows, keys_values, window_of
from .forward import Target
from .nvfp4 import quantise_nvfp4
from .target import TransformerTarget
from .weights import Numerics, read_linear


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter may look at before a round.

    `tokens` are prompt and committed output, the anchor last. `hidden` are the target's states of every token before
    the anchor: N + 1 of [len(tokens) - 1, H], the embeddings and then the residual stream after each layer.
    """

    tokens: tuple[int, ...]
    hidden: tuple[Tensor, ...]
    target: Target


class Drafter(Protocol):
    """Anything that proposes; `draft_length` is K, the most drafts of one round."""

    @property
    def method(self) -> Method: ...

    @property
    def draft_length(self) -> int: ...

    @property
    def needs_features(self) -> bool:
        """Whether `DraftContext.hidden` is read."""
        ...

    def propose(
        self, context: DraftContext, length: int, sampling: Sampling, uniform: Callable[[int], float]
    ) -> Proposal:
        """Up to `length` drafts for the positions behind the anchor; `uniform(i)` is the number for slot i from 0."""
        ...

    def state(self, context: DraftContext) -> tuple[dict[str, Tensor], dict[str, tuple[int, ...]]]:
        """What the drafter keeps between rounds: tensors and their rows' positions, named as in contract.State."""
        ...


@dataclass(frozen=True, slots=True)
class BlockDrafter:
    """A drafter of the DFlash family; stateless, every proposal starts from all target features.

    T = 0: every slot takes its best score, the lowest id among equals, and q is None. T > 0, by method:
    DFlash and convolution only draw from the slot's logits under the request's temperature, top-k, top-p and min-p;
    a selector and a Markov head draw from softmax(score / T) alone, over the slot's candidates or the whole vocabulary.
    Penalties, biases and forbidden tokens shape p, never q.
    """

    model: BlockModel

    @property
    def needs_features(self) -> bool:
        return True

    @property
    def method(self) -> Method:
        return self.model.config.method

    @property
    def draft_length(self) -> int:
        return self.model.config.draft_length

    def hidden(self, context: DraftContext, length: int) -> Tensor:
        """The final-normed states [length, H] that predict the `length` positions behind the anchor.

        The block is the anchor and as many mask tokens as that takes. In the DFlash layout the anchor's own row
        predicts nothing; with `sample_from_anchor` it predicts the first position.
        """
        config = self.model.config
        masks = length - 1 if config.sample_from_anchor else length
        rows = context_rows(self.model, context.hidden)
        block = context.target.embed([context.tokens[-1]] + [config.mask_token_id] * masks) * config.input_scale
        return block_pass(self.model, rows, block)[-length:]

    def logits(self, target: Target, hidden: Tensor) -> Array:
        """Logits [length, V] of final-normed states, through the target's own head."""
        config = self.model.config
        logits = target.head(hidden) * config.output_multiplier
        if config.softcap is not None:
            logits = torch.tanh(logits / config.softcap) * config.softcap
        return numbers(logits)

    def propose(
        self, context: DraftContext, length: int, sampling: Sampling, uniform: Callable[[int], float]
    ) -> Proposal:
        """Exactly `length` drafts, 0 to draft_length, but none at a position beyond the drafter's own context.

        See the class for how they are chosen.
        """
        if not 0 <= length <= self.draft_length:
            raise ValueError(f"length: must be between 0 and {self.draft_length}, got {length}")
        length = min(length, self.model.config.max_context - len(context.tokens))  # the first draft stands behind them
        if length <= 0:
            return Proposal.certain(())
        hidden = self.hidden(context, length)
        logits = self.logits(context.target, hidden)
        alone = self.method in (Method.DFLASH, Method.DFLASH_CONV)
        law = sampling if alone else Sampling(temperature=sampling.temperature)
        return walk(context.tokens[-1], length, self.scored(hidden, logits), law, uniform)

    def candidates(self, row: Array) -> Array:
        """The ids that may stand in a slot with logits [V]: a selector's few best ones, else the whole vocabulary."""
        few = self.model.config.selector
        return np.arange(len(row)) if few is None else selector.candidates(row, few.top_k)

    def scorer(self, hidden: Tensor, logits: Array) -> Scorer:
        """How good any tokens are in a slot, given the token before: the method's own scores."""
        config, tensors = self.model.config, self.model.tensors
        if config.selector is not None:
            predecessor, successor = (
                tensors[f"candidate_selector.{side}_codebook"] for side in ("predecessor", "successor")
            )
            joint = self.model.linear("candidate_selector.hidden_projection", hidden)
            return lambda slot, previous, ids: selector.score(
                logits[slot, ids], predecessor[previous], joint[slot], successor[ids]
            )
        if config.markov_rank is not None:
            w1, w2 = (tensors[f"markov_head.markov_w{factor}.weight"] for factor in (1, 2))
            return lambda slot, previous, ids: markov.score(logits[slot, ids], w1[previous], w2[ids])
        return lambda slot, previous, ids: logits[slot, ids]

    def scored(self, hidden: Tensor, logits: Array) -> Scored:
        """What may stand in each slot and how good it is, given the token before."""
        score, ids = self.scorer(hidden, logits), [self.candidates(row) for row in logits]
        return lambda slot, previous: (ids[slot], score(slot, previous, ids[slot]))

    def state(self, context: DraftContext) -> tuple[dict[str, Tensor], dict[str, tuple[int, ...]]]:
        """The context keys (after k_norm and RoPE) and values of each layer, oldest first, and their positions.

        `draft.L.key` and `draft.L.value` are [rows, kv_heads, head_dim]. Of a sliding layer these are the W - 1 last
        rows: what the next block's anchor, the row that looks furthest back, can still see.
        """
        rows = context_rows(self.model, context.hidden)
        tensors: dict[str, Tensor] = {}
        positions: dict[str, tuple[int, ...]] = {}
        for layer in range(self.model.config.layers):
            width = window_of(self.model.config, layer)
            first = 0 if width is None else max(0, len(rows) + 1 - width)
            kept = range(first, len(rows))
            key, value = keys_values(self.model, layer, rows[first:], kept)
            for name, tensor in ((f"draft.{layer}.key", key), (f"draft.{layer}.value", value)):
                tensors[name], positions[name] = tensor, tuple(kept)
        return tensors, positions


def load_drafter(
    directory: Path | str,
    target: Target,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    draft_format: DraftFormat = DraftFormat.STORED,
) -> BlockDrafter:
    """Load a drafter of the DFlash family, decoding every weight once; `dtype` and `device` must be the target's.

    Every key and tensor is accounted for and the sizes must fit the target's; CheckpointError names what does not.
    """
    if not isinstance(target, TransformerTarget):
        raise CheckpointError("target", "has no hidden states, which a drafter of this family reads")
    checkpoint = open_draft(directory, target.config)
    if draft_format is DraftFormat.NVFP4:
        checkpoint = in_nvfp4(checkpoint, quantise_nvfp4)
    config, numerics = checkpoint.config, Numerics(dtype, device)
    modules = draft_linears(config)
    linears = {name: read_linear(checkpoint, name, numerics) for name in modules}
    others = [name for name in checkpoint.tensors if name.rpartition(".")[0] not in modules]
    tensors = {name: checkpoint.read(name).to(device).to(dtype) for name in others}
    return BlockDrafter(BlockModel(config, linears, tensors))
