"""Spans: what a target is asked to run over, several samples at a time."""

from dataclasses import dataclass

from torch import Tensor

from .memory import Memory


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens of one sample that have no target state yet, or some of them.

    `ids` are all its tokens up to the end of the span, the span itself begins at `start`, the memory's length. The
    first `certain` of its tokens will stay whatever happens; the others are an anchor and drafts, which may not.
    Logits are wanted for the last `judged` tokens.
    """

    ids: tuple[int, ...]
    start: int
    memory: Memory
    certain: int
    judged: int

    @property
    def new(self) -> tuple[int, ...]:
        return self.ids[self.start :]

    @property
    def end(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a forward pass yields per span: logits [judged, V], and the features [n, taps * H] of its tokens."""

    logits: tuple[Tensor, ...]
    features: tuple[Tensor, ...]
