"""Policies: what may change with the shape of a batch, decided before a round samples anything.

A decision looks at a Shape and at nothing else, so it cannot depend on a draft of its own round: a draft length that
did would bias the output. Greedy output is the same under every policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .tile import TILE


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a sample's pass before anything is drafted: `rows` samples are in the batch, which brings
    `tokens` to the target besides all drafts; `context` tokens of the sample itself are committed."""

    rows: int
    context: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Policies:
    """None switches a policy off.

    `selector_rows`: the selector is used from so many samples in a batch on; with fewer, drafts come from the plain law
    of each slot. `draft_tokens`: a pass holds at most so many tokens as far as shorter drafts can bring that about.
    `draft_context`: a sample with more committed tokens gets no drafts. `bucket`: the rows of a pass are padded to a
    multiple of it, in whole tiles.
    """

    selector_rows: int | None = None
    draft_tokens: int | None = None
    draft_context: int | None = None
    bucket: int | None = None


def selects(policies: Policies, shape: Shape) -> bool:
    """Whether a drafter with a selector uses it in this round."""
    return policies.selector_rows is None or shape.rows >= policies.selector_rows


def most_drafts(policies: Policies, shape: Shape, longest: int) -> int:
    """The most drafts of this round, of at most `longest`; every sample has an equal part of the budget."""
    if policies.draft_context is not None and shape.context > policies.draft_context:
        return 0
    if policies.draft_tokens is None:
        return longest
    return min(longest, max(0, policies.draft_tokens - shape.tokens) // shape.rows)


def padded_rows(policies: Policies, rows: int) -> int:
    """How many rows a pass over so many has: whole tiles, and whole buckets."""
    size = TILE if policies.bucket is None else -(-policies.bucket // TILE) * TILE
    return -(-rows // size) * size


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policies let one sample do in one round."""

    drafts: int
    selector: bool
    told: Mapping[str, int]  # what contract.Round.policy says of it: the policies that are on, and nothing else


def decide(policies: Policies, shape: Shape, longest: int) -> Decision:
    """Everything that is decided before a round, for one sample."""
    drafts, selector, told = most_drafts(policies, shape, longest), selects(policies, shape), dict[str, int]()
    if policies.draft_tokens is not None or policies.draft_context is not None:
        told["draft"] = drafts
    if policies.selector_rows is not None:
        told["selector"] = selector
    return Decision(drafts, selector, told)
