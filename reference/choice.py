"""How every drafter turns scores into drafts: slot after slot, each told which token came before."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specqual.contract import CompactLaw, Proposal, Sampling

from .sampling import draw, filtered

Array = NDArray[Any]
Scored = Callable[[int, int], tuple[Array, Array]]
"""(slot, previous token) -> the token ids that may stand there and their scores, both [k]."""
Scorer = Callable[[int, int, Array], Array]
"""(slot, previous token, token ids [k]) -> their scores [k]."""


def numbers(x: Tensor) -> Array:
    """A tensor as a float64 array, where decoding arithmetic begins."""
    array: Array = x.double().cpu().numpy()
    return array


def pick(ids: Array, scores: Array, sampling: Sampling, u: float) -> tuple[int, CompactLaw | None]:
    """Choose one of `ids` by `scores` [k]: the token, and q, the law it was drawn from (ids rising).

    Greedy: the best score, the lowest id among equals; q is None and u is not looked at. Otherwise q follows from the
    scores by the filters of `sampling`, and the token is the lowest id v with u < Q(id <= v).
    """
    rising = np.argsort(ids)  # makes the lowest place the lowest id
    ids, law = ids[rising], filtered(scores[rising], sampling)
    if sampling.greedy:
        return int(ids[np.argmax(law)]), None
    alive = np.flatnonzero(law)
    return int(ids[draw(law, u)]), CompactLaw(tuple(map(int, ids[alive])), tuple(map(float, law[alive])))


def walk(anchor: int, length: int, scored: Scored, sampling: Sampling, uniform: Callable[[int], float]) -> Proposal:
    """Choose `length` drafts in a row; the anchor is the first predecessor, then each chosen draft is the next one's.

    `uniform(i)` is the number for slot i, counted from zero; greedy drafts ask for none.
    """
    previous, tokens, laws = anchor, [], []
    for slot in range(length):
        ids, scores = scored(slot, previous)
        previous, law = pick(ids, scores, sampling, 0.0 if sampling.greedy else uniform(slot))
        tokens.append(previous)
        laws.append(law)
    return Proposal(tuple(tokens), tuple(laws))
