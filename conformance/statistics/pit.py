"""Randomised probability integral transform: tokens under changing laws become cells of one uniform law.

Under the null u = F(x-) + v p(x), with v uniform and independent of the tokens, is uniform on [0, 1) given the whole
past, whatever the law of each token. Its leading bits are cells for the mixture of `eprocess`.
"""

from collections.abc import Sequence
from hashlib import blake2b
from math import fsum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def noise(seed: int, request: int, position: int) -> float:
    """The v of one token, uniform on [0, 1): 53 bits of a hash of where it stands, the same in a resumed run."""
    name = f"integral transform/{seed}/{request}/{position}".encode()
    return (int.from_bytes(blake2b(name, digest_size=8).digest(), "little") >> 11) * 2.0**-53


def transform(laws: Floats, tokens: Integers, v: Floats) -> Floats:
    """u [n] of tokens [n] under laws [n, V], in the order of the vocabulary; rows are scaled to sum to one.

    ValueError names the argument at fault; a token of probability zero is one of them, being no matter of evidence.
    """
    laws, tokens, v = np.atleast_2d(laws).astype(np.float64), np.atleast_1d(tokens), np.atleast_1d(v)
    if not (np.isfinite(laws).all() and (laws >= 0).all() and (laws.sum(axis=1) > 0).all()):
        raise ValueError("laws: must be non-negative and finite, with positive sums")
    if not ((tokens >= 0) & (tokens < laws.shape[1])).all():
        raise ValueError(f"tokens: must lie below {laws.shape[1]}")
    if not ((v >= 0) & (v < 1)).all():
        raise ValueError("v: must lie in [0, 1)")
    rows = np.arange(len(laws))
    if not (laws[rows, tokens] > 0).all():
        raise ValueError("tokens: one has probability zero")
    sums = np.cumsum(laws, axis=1)  # term by term along a row, so that a row's bits do not depend on its neighbours
    below = np.where(tokens > 0, sums[rows, tokens - 1], 0.0)
    return (below + v * laws[rows, tokens]) / sums[:, -1]


def ranked(ids: Sequence[int], probabilities: Sequence[float], token: int, v: float) -> float:
    """u of one token in falling order of probability, ties by id; what is not listed is one bucket at the end.

    For engines that report only the likeliest tokens. It leans low where an engine samples too greedily.
    """
    tail = 1.0 - fsum(probabilities)
    if len(ids) != len(probabilities) or min(probabilities, default=0.0) < 0 or tail < -1e-6:
        raise ValueError("probabilities: must match ids, be non-negative and sum to at most one")
    order = sorted(range(len(ids)), key=lambda i: (-probabilities[i], ids[i]))
    law = [probabilities[i] for i in order] + [max(tail, 0.0)]
    place = next((rank for rank, i in enumerate(order) if ids[i] == token), len(order))
    return float(transform(np.array(law), np.array(place), np.array(v))[0])


def cells(u: Floats, bits: int) -> Integers:
    """The leading bits of u as a cell below 2^bits, equally likely under the null."""
    if not 1 <= bits <= 16:
        raise ValueError("bits: must lie in 1..16")
    found: Integers = np.minimum(np.floor(np.asarray(u) * 2**bits), 2**bits - 1).astype(np.int64)
    return found
