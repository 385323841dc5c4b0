"""A row's part of a pass, between the pass and its commit."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from specqual.contract import Proposal

from .memory import Memory
from .row import Row
from .span import Span


class Flight(NamedTuple):
    """On its way to being judged; it holds for the memory that the pass was run in."""

    row: Row
    proposal: Proposal
    span: Span
    logits: Tensor  # [judged, V]
    features: Tensor  # [n, taps * H]
    policy: Mapping[str, int]  # what was decided before it

    def forked(self, row: Row, memory: Memory) -> "Flight":
        """The same for another sample of its request, whose memory was forked from this one's."""
        row.forwards = self.row.forwards
        return self._replace(row=row, span=replace(self.span, memory=memory))
