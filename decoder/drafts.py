"""From the logits of masked blocks to proposals: how long a block is, what may stand in each slot, and the walk."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specqual.contract import Proposal, Sampling
from specqual.contract.draft import DraftConfig

from .choice import Scores, best_ids, walk
from .propose import Ask


def lengths_of(config: DraftConfig, asks: Sequence[Ask]) -> list[int]:
    """The drafts of each ask: none beyond the drafter's own context."""
    return [max(0, min(ask.most, config.max_context - len(ask.tokens))) for ask in asks]


def block_of(config: DraftConfig, anchor: int, length: int) -> tuple[int, ...]:
    """The anchor, and masks for so many drafts."""
    return anchor, *[config.mask_token_id] * (length - 1 if config.sample_from_anchor else length)


def proposals(
    config: DraftConfig,
    tensors: Mapping[str, Tensor],
    wanted: Sequence[tuple[Ask, int]],
    logits: Tensor,
    joint: Tensor | None,
) -> list[Proposal]:
    """Drafts for every ask, from the logits [R, V] of all slots behind each other, and their joint states [R, rank] if
    there is a selector."""
    done, found = 0, list[Proposal]()
    for ask, length in wanted:
        rows = slice(done, done + length)
        scores = scores_of(config, tensors, ask, logits[rows], None if joint is None else joint[rows])
        plain = not (config.selector is not None and ask.selector) and config.markov_rank is None
        law = ask.sampling if plain else Sampling(temperature=ask.sampling.temperature)
        found.append(walk(ask.tokens[-1], length, scores, law, ask.uniform))
        done += length
    return found


def scores_of(
    config: DraftConfig, tensors: Mapping[str, Tensor], ask: Ask, logits: Tensor, joint: Tensor | None
) -> Scores:
    """What may stand in each slot of one block, and how good it is behind a given token."""
    selector, everything = config.selector, np.arange(config.vocab_size)
    if selector is not None and joint is not None and ask.selector:
        before, after = (tensors[f"candidate_selector.{side}_codebook"] for side in ("predecessor", "successor"))
        ids = best_ids(logits, selector.top_k)  # [slots, k]
        others = torch.cat([torch.full_like(ids[:1], ask.tokens[-1]), ids[:-1]])  # what may stand in front
        pairs = torch.bmm(before[others] * joint[:, None], after[ids].mT)  # [slots, k in front, k]
        scores = (pairs.double() + logits.double().gather(1, ids)[:, None]).numpy()
        known, fronts = ids.numpy(), [{token: i for i, token in enumerate(row)} for row in others.tolist()]
        return lambda slot, token: (known[slot], scores[slot, fronts[slot][token]])
    if config.markov_rank is not None:
        w1, w2 = (tensors[f"markov_head.markov_w{factor}.weight"] for factor in (1, 2))
        return lambda slot, token: (
            everything,
            logits[slot].double().numpy() + (w2 * w1[token]).sum(-1).double().numpy(),
        )
    return lambda slot, token: (everything, logits[slot].double().numpy())
