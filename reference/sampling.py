"""From logits to the law p that a token is drawn from: the steps of `contract.Sampling`, in their fixed order.

Laws are numpy arrays [V], of float64 or of Fraction objects: the same functions serve both.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specqual.contract import Sampling

Law = NDArray[Any]


def order(values: Law) -> NDArray[np.intp]:
    """Token ids [V] by falling value; ties by lowest id."""
    return np.argsort(-values, kind="stable")


def processed(
    logits: Law, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], forbidden: Iterable[int] = ()
) -> Law:
    """Steps 1 to 3: bias, penalties over the history, forbidden ids; logits [V] to new logits [V].

    A NaN counts as impossible and +inf as the largest number; a row that is left without any possible token is flat,
    so that even a broken target never yields an illegal token.
    """
    x = np.array(logits, dtype=np.float64)
    x[np.isnan(x)] = -np.inf
    for token, bias in sampling.logit_bias:
        x[token] += bias
    if sampling.repetition_penalty != 1:
        seen = np.unique(np.array([*prompt, *output], dtype=np.intp))
        values, penalty = x[seen], sampling.repetition_penalty
        with np.errstate(over="ignore"):  # an infinity is made finite below
            x[seen] = np.where(values > 0, values / penalty, values * penalty)
    if sampling.presence_penalty or sampling.frequency_penalty:
        emitted, counts = np.unique(np.array(output, dtype=np.intp), return_counts=True)
        x[emitted] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    if not (x > -np.inf).any():
        x[:] = 0.0
    x[list(forbidden)] = -np.inf
    if not (x > -np.inf).any():  # everything possible was forbidden: any other token is better than an illegal one
        x[np.setdiff1d(np.arange(len(x)), list(forbidden))] = 0.0
    return np.minimum(x, np.finfo(np.float64).max)


def restrict(p: Law, *, top_k: int = 0, top_p: float | Fraction = 1, min_p: float | Fraction = 0) -> Law:
    """Steps 6, 8 and 9 on probabilities [V]; the law of Fractions stays exact if `min_p` is one, too."""
    if top_k:
        p = _keep(p, order(p)[:top_k])
    if top_p < 1:
        ids = order(p)
        before = np.cumsum(np.append(p[:1] * 0, p[ids][:-1]))  # mass in front of each token
        p = _keep(p, ids[before < top_p])
    if min_p > 0:
        p = _keep(p, np.flatnonzero(p >= min_p * p.max()))
    return p


def filtered(logits: Law, sampling: Sampling) -> Law:
    """Steps 4 to 9: logits [V] as `processed` leaves them to the law p [V]; greedy gives a one-hot law."""
    best = np.argmax(logits)  # the lowest of equals
    if sampling.greedy:
        return point(int(best), np.zeros(len(logits)))
    with np.errstate(over="ignore"):
        scaled = (logits - logits[best]) / sampling.temperature
    if sampling.top_k:
        scaled[order(logits)[sampling.top_k :]] = -np.inf
    p = np.exp(scaled)
    return restrict(p / p.sum(), top_p=sampling.top_p, min_p=sampling.min_p)


def point(token: int, like: Law) -> Law:
    """The law that is certain of one token, in the size and number type of another."""
    p = like * 0
    p[token] += 1
    return p


def draw(p: Law, u: float | Fraction) -> int:
    """Draw by inverse CDF over ascending ids: the lowest v with u < P(id <= v); never a token of probability zero."""
    token = int(np.searchsorted(np.cumsum(p), np.array(u, dtype=p.dtype), side="right"))
    return token if token < len(p) else int(np.flatnonzero(p)[-1])  # rounding may leave the last sum below u


def _keep(p: Law, ids: NDArray[np.intp]) -> Law:
    kept = p * 0
    kept[ids] = p[ids]
    return np.asarray(kept / kept.sum())
