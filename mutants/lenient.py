"""Drafts that stay though they are not the best (K04), in an engine that promises no bits: each looks like a tie."""

from typing import Any

from specqual.contract import Proposal, Tokens
from specqual.decoder import engine
from specqual.decoder.row import Row
from specqual.decoder.sampling import Logits
from specqual.decoder.transaction import transact as sound_transact

from .mutant import planted_in
from .pairs import LOOSE
from .rows import swap

SLACK = 0.35  # nats; rounding to bfloat16 explains more of a single token


@swap("transact", engine)
def m04l(row: Row, proposal: Proposal, logits: Logits, *terms: Any) -> Tokens:
    """A greedy draft stays if it is at most 0.35 nats worse than the best. Every output is the target's up to rounding;
    too many tokens are near ties that went the drafter's way."""
    if row.request.sampling.greedy:
        logits = logits.copy()
        for line, draft in zip(logits, proposal.tokens, strict=False):
            if line.max() - line[draft] <= SLACK:
                line[draft] = line.max() + 1.0
    return sound_transact(row, proposal, logits, *terms)


PLANTED = planted_in("optimised", ("GE-8", LOOSE, (m04l,)))
