"""What a history of rounds comes to, by the names of `contract.Counted`."""

from collections.abc import Sequence

from specqual.contract import Round, Usage


def tally(rounds: Sequence[Round], usages: Sequence[Usage]) -> dict[str, int]:
    """Count rounds, their drafts, the drafts that became output, passes of the target, and charged tokens."""
    kept = [len(r.committed[: r.accepted]) for r in rounds]
    places = range(max(kept, default=0))
    return {
        "rounds": len(rounds),
        "drafted_rounds": sum(bool(r.proposals) for r in rounds),
        "draft_tokens": sum(len(r.proposals) for r in rounds),
        "accepted_tokens": sum(kept),
        **{f"accepted_tokens_at_{place}": sum(count > place for count in kept) for place in places},
        "target_forwards": sum(r.target_forwards for r in rounds),
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "completion_tokens": sum(usage.completion_tokens for usage in usages),
    }
