"""Faults of what a drafter is given: target features (K20), positions and masks (K21), context content (K22); ids
that are fed on unmapped (of K23)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specqual.contract import Proposal
from specqual.reference import ReferenceDecoder, choice, decoder, dflash, drafter, selector
from specqual.reference.choice import Array, Scored
from specqual.reference.dflash import BlockModel
from specqual.reference.drafter import BlockDrafter, DraftContext
from specqual.reference.sampling import order
from specqual.reference.transaction import Sample

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID, MARKOV
from .planting import replacing

CHUNK = 8  # of a prefill that m20g believes in

sound_rows, sound_keys, sound_visible, sound_convolve = (
    drafter.context_rows,
    dflash.keys_values,
    dflash.visible,
    dflash.convolve,
)
sound_drafted, sound_pass = ReferenceDecoder._drafted, drafter.block_pass

Uniform = Callable[[int], float]


def _with(model: BlockModel, **changes: object) -> BlockModel:
    return replace(model, config=replace(model.config, **changes))


@replacing("context_rows", drafter)
def m20a(model: BlockModel, hidden: Sequence[Tensor]) -> Tensor:
    """Features are tapped one layer too early."""
    return sound_rows(model, (hidden[0], *hidden[:-1]))


@replacing("context_rows", drafter)
def m20b(model: BlockModel, hidden: Sequence[Tensor]) -> Tensor:
    """The right layers in the wrong order."""
    return sound_rows(_with(model, target_layer_ids=model.config.target_layer_ids[::-1]), hidden)


@replacing("context_rows", drafter)
def m20c(model: BlockModel, hidden: Sequence[Tensor]) -> Tensor:
    """The row of the last accepted token is missing: zeros stand in its place."""
    blank = [torch.cat([states[:-1], torch.zeros_like(states[-1:])]) for states in hidden]
    return sound_rows(model, blank)


@replacing("_drafted", ReferenceDecoder)
def m20d(self: ReferenceDecoder, sample: Sample, length: int, uniform: Uniform) -> Proposal:
    """After a partial acceptance the row of the last drafted token is handed over. Silent after a full one."""
    last = sample.rounds[-1]
    if last.accepted == len(last.proposals):
        return sound_drafted(self, sample, length, uniform)
    verified = self._target.forward(sample.tokens[: last.start + 1] + last.proposals).hidden
    features = tuple(
        torch.cat([states[:-1], wrong[-1:]]) for states, wrong in zip(sample.features, verified, strict=True)
    )
    return sound_drafted(self, replace(sample, features=features), length, uniform)


@replacing("_drafted", ReferenceDecoder)
def m20e(self: ReferenceDecoder, sample: Sample, length: int, uniform: Uniform) -> Proposal:
    """Features of the prompt are as they should be, those of later rounds are tapped behind a norm. Shows in q; drafts
    stay the same in most rounds."""
    first = len(sample.request.prompt)
    features = tuple(
        torch.cat([states[:first], states[first:] / states[first:].square().mean(-1, keepdim=True).sqrt()])
        for states in sample.features
    )
    return sound_drafted(self, replace(sample, features=features), length, uniform)


@replacing("context_rows", drafter)
def m20f(model: BlockModel, hidden: Sequence[Tensor]) -> Tensor:
    """All taps are views of one buffer, which later layers overwrite before the drafter reads it."""
    last = max(model.config.target_layer_ids) + 1
    return sound_rows(model, [hidden[last]] * len(hidden))


@replacing("_drafted", ReferenceDecoder)
def m20g(self: ReferenceDecoder, sample: Sample, length: int, uniform: Uniform) -> Proposal:
    """Features of the prompt come from its last chunk only. Silent for prompts of one chunk."""
    lost = (len(sample.request.prompt) - 1) // CHUNK * CHUNK
    features = tuple(torch.cat([torch.zeros_like(states[:lost]), states[lost:]]) for states in sample.features)
    return sound_drafted(self, replace(sample, features=features), length, uniform)


@replacing("keys_values", dflash, drafter)
def m21a(model: BlockModel, layer: int, rows: Tensor, positions: range) -> tuple[Tensor, Tensor]:
    """Context rows stand one position too far back: keys of rows that start a context are turned by one less."""
    shifted = range(positions.start + 1, positions.stop + 1) if positions.start == 0 else positions
    return sound_keys(model, layer, rows, shifted)


@replacing("block_pass", drafter)
def m21b(model: BlockModel, context: Tensor, block: Tensor) -> Tensor:
    """The block is masked causally although the checkpoint is not."""
    return sound_pass(_with(model, is_causal=True), context, block)


@replacing("hidden", BlockDrafter)
def m21c(self: BlockDrafter, context: DraftContext, length: int) -> Tensor:
    """The mask id is the last but one of the vocabulary."""
    wrong = replace(self, model=_with(self.model, mask_token_id=self.model.config.vocab_size - 2))
    return sound_hidden(wrong, context, length)


@replacing("block_pass", drafter)
def m21d(model: BlockModel, context: Tensor, block: Tensor) -> Tensor:
    """Drafts are read one row late: the anchor's row is counted as the first draft's."""
    return torch.roll(sound_pass(model, context, block), 1, dims=0)


@replacing("visible", dflash)
def m21e(queries: range, keys: range, causal: bool, window: int | None) -> Tensor:
    """The window is measured from the end of the block instead of from each query. Needs a context past the window."""
    mask = sound_visible(queries, keys, causal, None)
    return mask if window is None else mask & (torch.tensor(keys) > queries[-1] - window)


@replacing("block_pass", drafter)
def m21f(model: BlockModel, context: Tensor, block: Tensor) -> Tensor:
    """RoPE turns with the base that most checkpoints have, not with this one's."""
    return sound_pass(_with(model, rope_theta=1e6), context, block)


@replacing("convolve", dflash)
def m21h(z: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
    """The block convolution restarts in the middle of the block, as if a batch were cut there."""
    cut = len(z) // 2
    parts = [(z[:cut], dynamic[:cut]), (z[cut:], dynamic[cut:])] if cut else [(z, dynamic)]
    return torch.cat([sound_convolve(rows, kernel, base) for rows, kernel in parts])


@replacing("candidates", selector)
def m21i(logits: Array, top_k: int) -> Array:
    """The worst tokens of a slot are its candidates."""
    return order(-logits)[:top_k]


@replacing("walk", drafter)
def m21j(anchor: int, length: int, scored: Scored, sampling: object, uniform: Uniform) -> Proposal:
    """Every slot's predecessor is the anchor, not the draft that was chosen before it. Silent for DFlash and K = 1."""
    return sound_walk(anchor, length, lambda slot, _: scored(slot, anchor), sampling, uniform)


@replacing("walk", drafter)
def m23e(anchor: int, length: int, scored: Scored, sampling: object, uniform: Uniform) -> Proposal:
    """A draft's place among the candidates is fed on to the next slot instead of its id. Silent for the first draft."""
    places: dict[int, int] = {}

    def unmapped(slot: int, previous: int) -> tuple[Array, Array]:
        ids, scores = scored(slot, places.get(previous, 0) if slot else anchor)
        places.clear()
        places.update({int(token): place for place, token in enumerate(ids)})
        return ids, scores

    return sound_walk(anchor, length, unmapped, sampling, uniform)


@replacing("convolve", dflash)
def m21k(z: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
    """Taps run the other way: tap 0 weighs the row before, tap 1 the row itself."""
    return sound_convolve(z, dynamic.flip(1), base.flip(0))


@replacing("_drafted", ReferenceDecoder)
def m22b(self: ReferenceDecoder, sample: Sample, length: int, uniform: Uniform) -> Proposal:
    """Rows of rejected tokens stay in the drafter's context, so everything behind them stands too far to the right."""
    last = sample.rounds[-1]
    rejected = len(last.proposals) - last.accepted
    if not rejected:
        return sound_drafted(self, sample, length, uniform)
    verified = self._target.forward(sample.tokens[: last.start + 1] + last.proposals).hidden
    features = tuple(
        torch.cat([states, wrong[-rejected:]]) for states, wrong in zip(sample.features, verified, strict=True)
    )
    return sound_drafted(self, replace(sample, features=features), length, uniform)


@replacing("visible", dflash)
def m22d(queries: range, keys: range, causal: bool, window: int | None) -> Tensor:
    """The window keeps the oldest context rows instead of the newest. Needs a context past the window."""
    mask = sound_visible(queries, keys, causal, None)
    places = torch.tensor(keys)
    return mask if window is None else mask & ((places < window - 1) | (places >= queries[0]))


@replacing("DraftContext", decoder)
def m22e(tokens: tuple[int, ...], hidden: tuple[Tensor, ...], target: object) -> DraftContext:
    """The newest context row is that of the token before: the last commit has not been written yet."""
    stale = tuple(torch.cat([states[:-1], states[-2:-1]]) if len(states) > 1 else states for states in hidden)
    return DraftContext(tokens, stale, target)


@replacing("DraftContext", decoder)
def m22f(tokens: tuple[int, ...], hidden: tuple[Tensor, ...], target: object) -> DraftContext:
    """Context rows beyond the sixteenth are never written. Shows in long contexts only."""
    return DraftContext(
        tokens, tuple(torch.cat([states[:16], torch.zeros_like(states[16:])]) for states in hidden), target
    )


sound_hidden, sound_walk = BlockDrafter.hidden, choice.walk


PLANTED = planted_in(
    "reference",
    (
        "DRF-1",
        DFLASH2,
        (
            m20a,
            m20b,
            m20c,
            m20d,
            m20f,
            m20g,
            m21b,
            m21c,
            m21d,
            m21e,
            m21f,
            m21h,
            m21i,
            m21j,
            m21k,
            m22b,
            m22d,
            m22f,
            m23e,
        ),
    ),
    ("DRF-1", HYBRID, (m20d,)),
    ("DRF-2", DFLASH2, (m20e,)),
    ("DRF-1", MARKOV, (m21j,)),
    ("DRF-3", DFLASH2, (m20c, m21a, m22e)),
)
