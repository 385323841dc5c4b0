"""Several tests at once: which of them reject, at an error rate for all of them together."""

from collections.abc import Sequence
from math import log


def holm(p_values: Sequence[float], alpha: float) -> list[int]:
    """The tests that Holm's procedure rejects, smallest p-value first: the chance of any false one is at most alpha."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found = []
    for rank, place in enumerate(order):
        if p_values[place] > alpha / (len(order) - rank):
            break
        found.append(place)
    return found


def e_bh(log_es: Sequence[float], alpha: float) -> list[int]:
    """The tests that e-BH lists, strongest first: at most a part alpha of them falsely, whatever their dependence.

    The k largest e-values are listed for the largest k whose k-th is at least m / (k alpha).
    """
    order = sorted(range(len(log_es)), key=lambda i: -log_es[i])
    last = 0
    for rank, place in enumerate(order, start=1):
        if log_es[place] >= log(len(order) / (rank * alpha)):
            last = rank
    return order[:last]
