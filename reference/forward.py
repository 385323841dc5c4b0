"""What one pass of a target yields, and what the reference asks of any target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Forward:
    """One pass over T tokens.

    `logits` [T, V]; row t is the law after token t. `hidden`: N + 1 of [T, H], the embedding output, then the residual
    stream after each layer, before the final norm. `tensors` and `positions` are the state after all T tokens under
    the names of contract.State; a sliding layer keeps the last window - 1 rows, those that the next token sees.
    """

    logits: Tensor
    hidden: tuple[Tensor, ...]
    tensors: dict[str, Tensor]
    positions: dict[str, tuple[int, ...]]


class Target(Protocol):
    """A target model, stateless: every call starts from nothing."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    @property
    def max_context(self) -> int: ...

    def forward(self, ids: Sequence[int]) -> Forward:
        """Run over T >= 1 tokens; IndexError for an id outside the vocabulary."""
        ...

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Embedding output [T, H]; IndexError for an id outside the vocabulary."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """The output projection alone, without the final norm: [..., H] -> logits [..., V]."""
        ...


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Raise IndexError, naming the place, for an id outside the vocabulary."""
    for place, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise IndexError(f"ids[{place}]: {token} is outside the vocabulary of {vocab_size}")
