"""How scores become drafts: slot after slot, each told which token came before it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from specqual.contract import CompactLaw, Proposal, Sampling

from .sampling import Row, draw, falling, law

Scores = Callable[[int, int], tuple[NDArray[np.intp], Row]]
"""(slot, token before it) -> ids that may stand there, rising, and their scores."""


def walk(anchor: int, length: int, scores: Scores, sampling: Sampling, uniform: Callable[[int], float]) -> Proposal:
    """Choose `length` drafts in a row. Greedy takes the best score, the lowest id among equals, and claims no q."""
    tokens, laws, before = list[int](), list[CompactLaw | None](), anchor
    for slot in range(length):
        ids, row = scores(slot, before)
        q = law(row, sampling)
        if sampling.greedy:
            before = int(ids[np.argmax(q)])
            laws.append(None)
        else:
            before = int(ids[draw(q, uniform(slot))])
            alive = np.flatnonzero(q)
            laws.append(CompactLaw(tuple(ids[alive].tolist()), tuple(q[alive].tolist())))
        tokens.append(before)
    return Proposal(tuple(tokens), tuple(laws))


def best_ids(logits: Row, count: int) -> NDArray[np.intp]:
    """The `count` best ids of a row, rising; equal logits by lowest id."""
    return np.sort(falling(logits)[:count])
