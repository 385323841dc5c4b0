"""What these faults are made of: a round judged as another request's, and the ratio rule with parts to exchange."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from specqual.contract import CompactLaw, Make, Proposal, Purpose, Request, Rule, Sampling
from specqual.decoder import engine, sampling, transaction
from specqual.decoder.row import Row
from specqual.decoder.sampling import Logits, certain, draw, law, shaped
from specqual.decoder.sampling import Row as Numbers
from specqual.decoder.transaction import Terms
from specqual.decoder.verify import Law, Uniform, Verdict, dense

from ..planting import swapped
from ..rows import swap

Pair = tuple[Make, str, str, str]
"""A factory, its kind, a target and a drafter."""
DENSE = ("nano/dense", "nano/dense-dflash2")
HYBRID = ("nano/hybrid", "nano/hybrid-dflash2")
WINDOW = ("nano/window", "nano/window-dflash2")

SHAPED, TRANSACT = shaped, transaction.transact


@contextmanager
def seated(row: Row, request: Request) -> Iterator[None]:
    """Let a row stand for another request for the body."""
    own, row.request = row.request, request
    try:
        yield
    finally:
        row.request = own


class Seat(NamedTuple):
    """What a faulty verification may look at beside its arguments."""

    row: Row
    drafts: tuple[int, ...]
    logits: Logits
    terms: Terms

    def law(self, slot: int, params: Sampling) -> Numbers:
        """The law behind so many drafts under other parameters."""
        request, output = self.row.request, self.row.output + self.drafts[:slot]
        forbidden = self.terms.eos_ids if len(output) < request.min_tokens else ()
        row = self.logits[slot].astype(np.float64)
        return law(shaped(row, request.sampling, request.prompt, output, forbidden), params)


Fault = Callable[[Seat, Rule, Law, Proposal, Uniform], Verdict]


def verifying(fault: Fault) -> Make:
    """Turn a verification that also sees its seat into the factory of a decoder that samples by it."""

    def transact(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Any) -> Any:
        seat = Seat(row, proposal.tokens, logits, terms)
        with swapped({(transaction, "verify"): lambda *given: fault(seat, *given)}):
            return TRANSACT(row, proposal, logits, terms, policy)

    transact.__name__, transact.__doc__, transact.__module__ = fault.__name__, fault.__doc__, fault.__module__
    return swap("transact", engine)(transact)


def shaping(change: Callable[[Row, Proposal, Sequence[int]], Sequence[int]]) -> Make:
    """Turn a change of the output that penalties look at into the factory of a decoder whose penalties do."""

    def transact(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Any) -> Any:
        def faulty(x: Numbers, params: Sampling, prompt: Sequence[int], output: Sequence[int], ids: Any) -> Numbers:
            return SHAPED(x, params, prompt, change(row, proposal, output), ids)

        with swapped({(transaction, "shaped"): faulty, (sampling, "shaped"): faulty}):
            return TRANSACT(row, proposal, logits, terms, policy)

    transact.__name__, transact.__doc__, transact.__module__ = change.__name__, change.__doc__, change.__module__
    return swap("transact", engine)(transact)


def theirs(q: CompactLaw | None, draft: int, size: int) -> Numbers:
    """The law [size] that a draft came from."""
    return certain(draft, size) if q is None else dense(q, size)


def ratio(
    p: Law, proposal: Proposal, uniform: Uniform, correct: Callable[[int, Numbers], Numbers], bonus: Law
) -> Verdict:
    """The ratio rule, with the law of a correction (slot, q) and that of the bonus given."""
    for slot, draft in enumerate(proposal.tokens):
        here = p(slot)
        q = theirs(proposal.q[slot], draft, len(here))
        if not uniform(Purpose.ACCEPT, slot) * q[draft] < here[draft]:
            return Verdict(slot, draw(correct(slot, q), uniform(Purpose.RESIDUAL, slot)))
    last = len(proposal.tokens)
    return Verdict(last, draw(bonus(last), uniform(Purpose.BONUS, last)))


def residual(p: Numbers, q: Numbers) -> Numbers:
    """The law of max(p - q, 0), or p where that has no mass."""
    left = np.maximum(p - q, 0.0)
    mass = left.sum()
    return left / mass if mass > 0 else p


def compact(ids: Any, q: Numbers) -> CompactLaw:
    """A law over `ids` as it travels."""
    alive = np.flatnonzero(q)
    return CompactLaw(tuple(ids[alive].tolist()), tuple(q[alive].tolist()))
