"""Rounds: what happened between two commits, and drafters that a test can script."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CompactLaw:
    """A law on few tokens: `probabilities[i]` is that of token `ids[i]`; every other token has probability zero."""

    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What crosses from propose to verify: drafted tokens and the law each was drawn from.

    `q[i]` is None where the drafter claims no law (the draft counts as certain, q one-hot).
    """

    tokens: tuple[int, ...]
    q: tuple[CompactLaw | None, ...]

    @classmethod
    def certain(cls, tokens: tuple[int, ...]) -> "Proposal":
        """Drafts without a law, as a greedy or n-gram drafter makes them."""
        return cls(tokens, (None,) * len(tokens))


@dataclass(frozen=True, slots=True)
class Round:
    """One transaction of one sample: propose, verify, accept, commit.

    `start` is the absolute index of the anchor, the last committed token, which has not been through the target yet
    (in the first round: the last prompt token, and nothing is drafted). `committed` are the accepted drafts and the
    correction or bonus token, cut where the sample ended; `accepted` counts the drafts that verification accepted,
    before that cut. `target_forwards` counts the passes of the target that this round rests on (a prompt may take
    several, and one pass serves all samples of a batch). `policy` tells by name what the decoder's policies decided for
    this round, before anything was drafted: `draft` the most drafts, `selector` whether it was used (0 or 1), `bucket`
    the rows of its last pass; a policy that is off is not named.
    """

    request_id: int
    sample: int
    start: int
    anchor: int
    proposals: tuple[int, ...]
    q: tuple[CompactLaw | None, ...]
    accepted: int
    committed: tuple[int, ...]
    target_forwards: int = 1
    policy: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ScriptContext:
    """What a scripted drafter may look at: `tokens` are prompt and committed output, the anchor last."""

    request_id: int
    sample: int
    tokens: tuple[int, ...]
    round_index: int
    max_draft: int


Script = Callable[[ScriptContext], Proposal]
"""A drafter passed in by a test; it returns at most `max_draft` drafts, possibly none.

A proposal with q is drawn by the script itself. Out-of-range ids and laws that do not sum to one are errors of the
script, and a decoder must treat them as such: reject the proposal, commit at least one legal token, go on.
"""
