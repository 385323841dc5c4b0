"""Prompt lookup: a drafter without a model, which proposes what followed the same words before."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from specqual.contract import Method, Proposal, Sampling

from .drafter import DraftContext


def lookup(tokens: tuple[int, ...], longest: int) -> int | None:
    """Where the longest suffix of at most `longest` tokens occurred before, most recently: the index right behind it.

    None if not even the last token occurred before. The occurrence may overlap the suffix.
    """
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[-n:]:
                return start + n
    return None


@dataclass(frozen=True, slots=True)
class NgramDrafter:
    """Proposes the tokens behind the match of `lookup`, as certain drafts (no q); none without a match."""

    draft_length: int
    longest: int = 3

    @property
    def method(self) -> Method:
        return Method.NGRAM

    @property
    def needs_features(self) -> bool:
        return False

    def propose(
        self, context: DraftContext, length: int, sampling: Sampling, uniform: Callable[[int], float]
    ) -> Proposal:
        """At most `length` drafts; fewer where the match lies so near the end that fewer tokens follow it."""
        start = lookup(context.tokens, self.longest)
        return Proposal.certain(() if start is None else context.tokens[start : start + length])

    def state(self, context: DraftContext) -> tuple[dict[str, Tensor], dict[str, tuple[int, ...]]]:
        """Nothing but the tokens themselves."""
        return {}, {}
