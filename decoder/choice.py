"""How scores become drafts: slot after slot, each told which token came before it."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specqual.contract import CompactLaw, Proposal, Sampling

from .sampling import Row, clean, draw, falling, law

Scores = Callable[[int, int], tuple[NDArray[np.intp], Row]]
"""(slot, token before it) -> ids that may stand there, rising, and their scores."""


def walk(anchor: int, length: int, scores: Scores, sampling: Sampling, uniform: Callable[[int], float]) -> Proposal:
    """Choose `length` drafts in a row. Greedy takes the best number, the lowest id among equals, and claims no q.

    A slot whose scores make no law ends the drafts: it depends on those in front of it alone, which stand.
    """
    tokens, laws, before = list[int](), list[CompactLaw | None](), anchor
    for slot in range(length):
        ids, row = scores(slot, before)
        if sampling.greedy:
            before = int(ids[np.argmax(clean(row))])
            laws.append(None)
        else:
            q = law(row, sampling)
            if not np.isfinite(q).all():
                break
            before = int(ids[draw(q, uniform(slot))])
            alive = np.flatnonzero(q)
            laws.append(CompactLaw(tuple(ids[alive].tolist()), tuple(q[alive].tolist())))
        tokens.append(before)
    return Proposal(tuple(tokens), tuple(laws))


def best_ids(logits: Tensor, count: int) -> Tensor:
    """The `count` best ids of each row [n, V], rising; equal logits by lowest id."""
    best, ids = logits.topk(count, sorted=False)
    clear = (logits >= best.amin(-1, keepdim=True)).sum(-1) == count  # else an equal one, or NaN, was left out
    for row in (~clear).nonzero()[:, 0].tolist():
        ids[row] = torch.from_numpy(falling(logits[row].double().numpy())[:count].copy())
    return ids.sort(-1).values
