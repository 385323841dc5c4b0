"""Proposers: what the transaction knows of a drafter, and those without a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specqual.contract import Method, Proposal, Sampling, Script, ScriptContext

from .memory import Memory, Store
from .pages import Stream


@dataclass(frozen=True, slots=True)
class Ask:
    """One sample that wants drafts: `tokens` are prompt and committed output, the anchor last; `most` of them, at most.

    `uniform(i)` is the number of slot i from 0. Without `selector`, a drafter that has one drafts from the plain law of
    each slot, and that is its q.
    """

    request_id: int
    sample: int
    tokens: tuple[int, ...]
    round_index: int
    most: int
    sampling: Sampling
    memory: Memory
    uniform: Callable[[int], float]
    selector: bool = True


class Proposer(Protocol):
    """Anything that drafts. Its hidden states stay with it: a proposal is tokens and q, nothing else."""

    @property
    def method(self) -> Method: ...

    @property
    def draft_length(self) -> int:
        """K, the most drafts of one round."""
        ...

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What it keeps in the page pool."""
        ...

    def propose(self, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        """Drafts for every ask, in order."""
        ...

    def ingest(
        self, memories: Sequence[Memory], starts: Sequence[int], features: Sequence[Tensor], store: Store
    ) -> None:
        """Take in the features [n, taps * H] of committed tokens, from position `start` on, whatever was drafted."""
        ...


@dataclass(frozen=True, slots=True)
class Ngram:
    """Prompt lookup: the tokens that followed the longest suffix, of at most `longest` tokens, where it last stood."""

    draft_length: int
    longest: int = 3

    @property
    def method(self) -> Method:
        return Method.NGRAM

    @property
    def streams(self) -> tuple[Stream, ...]:
        return ()

    def propose(self, asks: Sequence[Ask], store: Store) -> list[Proposal]:
        return [Proposal.certain(self._follow(ask.tokens)[: ask.most]) for ask in asks]

    def _follow(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        for size in range(min(self.longest, len(tokens) - 1), 0, -1):
            suffix = tokens[-size:]
            for end in range(len(tokens) - 1, size - 1, -1):
                if tokens[end - size : end] == suffix:
                    return tokens[end:]
        return ()

    def ingest(
        self, memories: Sequence[Memory], starts: Sequence[int], features: Sequence[Tensor], store: Store
    ) -> None:
        """The tokens themselves are all it looks at."""


def scripted(script: Script, asks: Sequence[Ask]) -> list[Proposal]:
    """What a test's drafter says for every ask."""
    return [script(ScriptContext(ask.request_id, ask.sample, ask.tokens, ask.round_index, ask.most)) for ask in asks]
