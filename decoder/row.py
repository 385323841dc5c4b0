"""One sample on its way: what the scheduler moves, and where it stands."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specqual.contract import FinishReason, Request, Round

from .memory import Memory


@dataclass(slots=True)
class Row:
    """One of a request's n samples. `forwards` counts target passes since its last commit; `held`: preempted."""

    request_id: int
    request: Request
    index: int
    output: tuple[int, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    reason: FinishReason | None = None
    memory: Memory | None = None
    held: bool = False
    forwards: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and committed output, the anchor last."""
        return self.request.prompt + self.output

    @property
    def waiting(self) -> bool:
        """Whether it wants to be let in."""
        return self.reason is None and self.memory is None and not self.held

    @property
    def settled(self) -> int:
        """How many of its tokens are to have a target state before it is asked for drafts.

        All but the anchor; and in the first round, which drafts nothing, the anchor goes with the prompt.
        """
        return len(self.tokens) - 1 if self.rounds else len(self.tokens)

    def follows(self, samples: Sequence["Row"]) -> bool:
        """Whether an older one of its request's samples is filling the prompt that it waits for, too."""
        return not self.rounds and any(row.memory is not None and not row.rounds for row in samples[: self.index])

    def headroom(self, max_context: int) -> int:
        """The most tokens that it may still commit before its budget or the context ends."""
        return min(self.request.max_tokens - len(self.output), max_context - len(self.tokens))
