"""Counters: what the engine has done since it was made."""

from collections import Counter
from dataclasses import dataclass, field

from specqual.contract import Round, Usage


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers by the names of `contract.Counted`; they only grow."""

    found: Counter[str] = field(default_factory=Counter)

    def passed(self) -> None:
        """One pass of the target, whatever it served."""
        self.found["target_forwards"] += 1

    def committed(self, r: Round) -> None:
        """A round. Drafts behind the end of a sample were not accepted, whatever verification said."""
        kept = min(r.accepted, len(r.committed))
        self.found["rounds"] += 1
        self.found["drafted_rounds"] += bool(r.proposals)
        self.found["draft_tokens"] += len(r.proposals)
        self.found["accepted_tokens"] += kept
        for place in range(kept):
            self.found[f"accepted_tokens_at_{place}"] += 1

    def ended(self, usage: Usage) -> None:
        """A request that was served."""
        self.found["prompt_tokens"] += usage.prompt_tokens
        self.found["completion_tokens"] += usage.completion_tokens
