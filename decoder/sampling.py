"""From a row of logits to the law p that its token is drawn from, in the fixed order of contract.Sampling.

Everything here is float64 on the host, one row at a time: a row's parameters are its own, whatever the batch holds.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specqual.contract import Sampling

Row = NDArray[np.float64]
Logits = NDArray[np.floating[Any]]
"""Raw logits [..., V], as exact as the target makes them."""
HIGHEST = float(np.finfo(np.float64).max)


def falling(values: Row) -> NDArray[np.intp]:
    """Places by falling value, equal values by rising place."""
    return np.argsort(-values, kind="stable")


def clean(logits: Row) -> Row:
    """Logits [V] as numbers that can be decided by: NaN is impossible, +inf the largest number, and a row without any
    possible token is flat."""
    x = np.where(np.isnan(logits), -np.inf, np.minimum(logits, HIGHEST))
    return x if np.isfinite(x).any() else np.zeros_like(x)


def best(
    logits: Logits, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], forbidden: Sequence[int]
) -> int:
    """The greedy token of a row [V] of any precision: the lowest best id behind steps 1 to 3.

    Where these change nothing, and the largest logit is a finite number, a look at the row as it stands is enough.
    """
    first = int(np.argmax(logits))
    if bare(sampling) and not forbidden and np.isfinite(logits[first]):
        return first
    return int(np.argmax(shaped(logits.astype(np.float64), sampling, prompt, output, forbidden)))


def bare(sampling: Sampling) -> bool:
    """Whether steps 1 and 2 leave every row as it is."""
    penalties = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1
    return not (penalties or sampling.logit_bias)


def shaped(
    logits: Row, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], forbidden: Sequence[int]
) -> Row:
    """Steps 1 to 3: bias, penalties over what stands in front, forbidden ids; logits [V] to new logits [V]."""
    x = np.where(np.isnan(logits), -np.inf, logits)
    for token, bias in sampling.logit_bias:
        x[token] += bias
    with np.errstate(over="ignore"):
        if sampling.repetition_penalty != 1:
            for token in {*prompt, *output}:
                x[token] = (
                    x[token] / sampling.repetition_penalty if x[token] > 0 else x[token] * sampling.repetition_penalty
                )
    if sampling.presence_penalty or sampling.frequency_penalty:
        for token, count in Counter(output).items():
            x[token] -= sampling.presence_penalty + sampling.frequency_penalty * count
    x = clean(x)
    legal = np.ones(len(x), dtype=bool)
    legal[list(forbidden)] = False
    if legal.any() and not np.isfinite(x[legal]).any():
        x[legal] = 0.0  # all that was possible is forbidden: any legal token is better than an illegal one
    x[~legal] = -np.inf
    return x


def law(x: Row, sampling: Sampling) -> Row:
    """Steps 4 to 9: shaped logits [V] to probabilities [V]; greedy gives the one-hot law of the lowest best id."""
    best = int(np.argmax(x))
    if sampling.greedy:
        return certain(best, len(x))
    with np.errstate(over="ignore"):
        x = (x - x[best]) / sampling.temperature
    if 0 < sampling.top_k < len(x):
        x[falling(x)[sampling.top_k :]] = -np.inf
    p = np.exp(x)
    p /= p.sum()
    if sampling.top_p < 1:
        ranked = falling(p)
        reached = np.concatenate([[0.0], np.cumsum(p[ranked])[:-1]])
        p[ranked[reached >= sampling.top_p]] = 0.0
        p /= p.sum()
    if sampling.min_p > 0:
        p[p < sampling.min_p * p.max()] = 0.0
        p /= p.sum()
    return p


def certain(token: int, size: int) -> Row:
    """The law [size] of one token."""
    p = np.zeros(size)
    p[token] = 1.0
    return p


def draw(p: Row, u: float) -> int:
    """The lowest id v with u < P(id <= v): never one of probability zero, whatever rounding does to the last sum."""
    place = int(np.searchsorted(np.cumsum(p), u, side="right"))
    return place if place < len(p) else int(np.max(np.nonzero(p)))


def logprobs(logits: Row) -> Row:
    """Log-probabilities [V] (nats) of a raw row: temperature one, no filters."""
    x = clean(logits)
    x = x - x.max()
    return np.asarray(x - np.log(np.exp(x).sum()))
