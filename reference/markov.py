"""The Markov head: a bias on a slot's logits that depends on the token before it."""

from torch import Tensor

from .choice import Array, numbers


def score(logits: Array, predecessor: Tensor, w2: Tensor) -> Array:
    """Score every token [V] after a given one: logits + W2 w, with w [rank] that token's row of W1 and W2 [V, rank]."""
    return logits + numbers(w2 @ predecessor)
