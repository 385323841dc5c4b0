"""What rounding may make of a law: tokens at the edge of top-k, top-p and min-p that may be in or out, and how far
everything else may move."""

from dataclasses import dataclass, replace
from math import exp, tanh

import numpy as np

from specqual.contract import Sampling
from specqual.reference.sampling import Law, filtered, order

ALL = Sampling(temperature=1.0)


def variation(nats: float, temperature: float) -> float:
    """The largest total variation between two laws whose scores differ by at most `nats` between any two tokens.

    Tilting a law by exp(d), with d in a range of r, moves at most tanh(r / 4) of its mass: half of it lies at each end.
    """
    return tanh(nats / temperature / 4)


@dataclass(frozen=True, slots=True)
class Bracket:
    """The reference's law [V]; the same with every token that rounding may let in; and the total variation that
    rounding explains, of the probabilities and of the tokens at the edges together."""

    law: Law
    loose: Law
    slack: float


def bracket(logits: Law, sampling: Sampling, nats: float) -> Bracket:
    """The laws that logits [V], processed, may give where rounding moves two of them apart by at most `nats`."""
    law = filtered(logits, sampling)
    if sampling.greedy or sampling == replace(ALL, temperature=sampling.temperature):
        return Bracket(law, law, variation(nats, sampling.temperature or 1.0))
    loose, tight = _cut(logits, sampling, nats), _cut(logits, sampling, -nats)
    edge = float(np.abs(loose - tight).sum()) / 2
    return Bracket(law, loose, min(1.0, variation(nats, sampling.temperature) + edge))


def _cut(logits: Law, sampling: Sampling, nats: float) -> Law:
    """The law with its cuts made too late (`nats` positive), or too early; the best token always stays."""
    temperature, ranked = sampling.temperature, np.sort(logits)[::-1]
    scaled = (logits - ranked[0]) / temperature
    if 0 < sampling.top_k < len(logits):
        last, next_ = ranked[sampling.top_k - 1], ranked[sampling.top_k]
        scaled = np.where(logits >= last - nats if nats > 0 else logits > next_ - nats, scaled, -np.inf)
        scaled[logits.argmax()] = 0.0
    p = np.exp(scaled)
    p = p / p.sum()
    if sampling.top_p < 1:
        ids = order(p)
        before = np.cumsum(np.append(0.0, p[ids][:-1]))
        reach = variation(abs(nats), temperature) * (1 if nats > 0 else -1)
        p = _only(p, ids[(before < sampling.top_p + reach) | (np.arange(len(ids)) == 0)])
    if sampling.min_p > 0:
        least = min(1.0, sampling.min_p * exp(-nats / temperature))
        p = _only(p, np.flatnonzero(p >= least * p.max()))
    return p


def _only(p: Law, ids: Law) -> Law:
    kept = np.zeros_like(p)
    kept[ids] = p[ids]
    return np.asarray(kept / kept.sum())
