"""Spans: what a target is asked to run over, several samples at a time, and what any target answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from .memory import Memory, Store
from .pages import Stream


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens of one sample that have no target state yet, or some of them.

    `ids` are all its tokens up to the end of the span, the span itself begins at `start`, the memory's length. The
    first `certain` of its tokens will stay whatever happens; the others are an anchor and drafts, which may not.
    Logits are wanted for the last `judged` tokens. `mark` asks for the recurrent state behind a position of the certain
    part, to be put into a slot of its own.
    """

    ids: tuple[int, ...]
    start: int
    memory: Memory
    certain: int
    judged: int
    mark: tuple[int, int] | None = None  # position, slot

    @property
    def new(self) -> tuple[int, ...]:
        return self.ids[self.start :]

    @property
    def end(self) -> int:
        return len(self.ids)


class Pass(NamedTuple):
    """What a forward pass yields per span: logits [judged, V], and the features [n, taps * H] of its tokens."""

    logits: tuple[Tensor, ...]
    features: tuple[Tensor, ...]


class Target(Protocol):
    """What the engine knows of a target."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_ids(self) -> tuple[int, ...]: ...
    @property
    def max_context(self) -> int: ...
    @property
    def streams(self) -> tuple[Stream, ...]: ...

    def forward(self, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        """Run over all spans at once, padded to at least so many rows; the pools have room for them."""
        ...
