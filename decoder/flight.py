"""A row's part of a pass, between the pass and its commit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from torch import Tensor

from specqual.contract import Proposal

from .memory import Memory
from .propose import Ask
from .row import Row
from .span import Span
from .transaction import Terms
from .verify import Verdict


class Flight(NamedTuple):
    """On its way to being judged; it holds for the memory that the pass was run in.

    `verdict` waits for what the device that ran the pass says of the proposal; without it, the logits are judged here.
    """

    row: Row
    proposal: Proposal
    span: Span
    logits: Tensor  # [judged, V], where the pass was run
    features: Tensor  # [n, taps * H]
    policy: Mapping[str, int]  # what was decided before it
    verdict: Callable[[], Verdict] | None = None
    taken: bool = False  # whether the drafter has the features already

    def forked(self, row: Row, memory: Memory) -> "Flight":
        """The same for another sample of its request, whose memory was forked from this one's."""
        row.forwards = self.row.forwards
        return self._replace(row=row, span=replace(self.span, memory=memory))


def known(verdict: Verdict) -> Callable[[], Verdict]:
    """A verdict for which nobody has to wait."""
    return lambda: verdict


class Judge(Protocol):
    """A device that judges what was run on it."""

    def __call__(self, flights: Sequence[Flight], terms: Terms) -> list[Flight]:
        """The same flights; those that it judges have a verdict, for which nobody has waited yet."""
        ...


class Turns(Protocol):
    """A device that runs whole rounds, the drafter's part of the next one included."""

    def __call__(
        self, rows: Sequence[Row], asks: Mapping[int, Ask], terms: Terms
    ) -> list[tuple[Proposal, Verdict]] | None:
        """A proposal and its verdict for every row, or None if this batch has to run in parts."""
        ...
