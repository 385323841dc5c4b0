"""The candidate selector of DFlash 2: a serial walk over the few best tokens of every slot."""

from torch import Tensor

from .choice import Array, numbers
from .sampling import order


def candidates(logits: Array, top_k: int) -> Array:
    """The `top_k` best token ids of one slot's logits [V], by falling logit, equal logits by rising id."""
    return order(logits)[:top_k]


def score(unary: Array, predecessor: Tensor, joint: Tensor, successors: Tensor) -> Array:
    """Score one slot's candidates [k] after a given token: unary + sum over r of predecessor * joint * successor.

    `unary` [k] are the candidates' logits, `predecessor` [r] the code of the token before, `joint` [r] the projection
    of the slot's final-normed state, `successors` [k, r] the candidates' codes.
    """
    return unary + numbers(successors @ (predecessor * joint))
