"""Faults of what an engine says about itself (K30): usage, counters, log-probabilities, deltas of a stream. The output
is exact in all of them, but where a delta lacks tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specqual.conformance.veil import BlackBox
from specqual.contract import (
    CompactLaw,
    Decoder,
    Event,
    Finished,
    Proposal,
    Round,
    Setup,
    TokenLogprobs,
    Tokens,
)
from specqual.decoder import engine, make, transaction
from specqual.decoder.block import BlockDrafter
from specqual.decoder.counts import Counts
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Store
from specqual.decoder.propose import Ask
from specqual.decoder.row import Row
from specqual.decoder.sampling import Logits
from specqual.decoder.transaction import Terms

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID2, Pair
from .planting import Place, planted
from .rows import remembering, swap

sound_transact, sound_judged, sound_finish = transaction.transact, transaction.judged, Engine._finish
sound_propose = BlockDrafter.propose
sound_committed, sound_cancel, sound_step = Counts.committed, Engine.cancel, Engine.step


@swap("committed", Counts)
def m30a(self: Counts, r: Round) -> None:
    """Drafts behind the end of a sample count as accepted (B208). Shows where an end falls inside an accepted span."""
    sound_committed(self, replace(r, committed=(*r.proposals[: r.accepted], 0)))


@swap("committed", Counts)
def m30b(self: Counts, r: Round) -> None:
    """Draft tokens are counted as rounds times K (B213). Exact while every round drafts K, wrong in short last ones."""
    sound_committed(self, r)
    self.found["draft_tokens"] += (4 - len(r.proposals)) * bool(r.proposals)  # the K of every nano drafter


@swap("_finish", Engine)
def m30c(self: Engine, request_id: int) -> Finished:
    """Completion tokens are counted before the cut at a stop or at the budget (B210, B211)."""
    final = sound_finish(self, request_id)
    over = sum(r.accepted + 1 - len(r.committed) for r in self.rounds(request_id))
    return replace(final, usage=replace(final.usage, completion_tokens=final.usage.completion_tokens + over))


def telling(row: Row, found: Tokens, logprobs: Sequence[TokenLogprobs]) -> Tokens:
    return found if found.logprobs is None else replace(found, logprobs=tuple(logprobs))


@swap("transact", engine)
def m30d(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """Accepted drafts are reported with log-probability 0, for they were certain (B215)."""
    found = sound_transact(row, proposal, logits, terms, policy)
    accepted = row.rounds[-1].accepted
    told = enumerate(found.logprobs or ())
    return telling(row, found, [replace(entry, token=0.0) if place < accepted else entry for place, entry in told])


@swap("transact", engine)
def m30d1(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """Accepted drafts are reported with the draft's log-probability under q. Exact for certain drafts of greedy rows
    only where the target is certain, too."""
    found = sound_transact(row, proposal, logits, terms, policy)
    told = list(found.logprobs or ())
    for place, (token, q) in enumerate(zip(proposal.tokens[: row.rounds[-1].accepted], proposal.q, strict=False)):
        if place < len(told) and q is not None:
            told[place] = replace(told[place], token=mass(q, token))
    return telling(row, found, told)


def mass(q: CompactLaw, token: int) -> float:
    return float(np.log(q.probabilities[q.ids.index(token)]))


@swap("transact", engine)
def m30d2(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """Log-probabilities are taken from the row behind the token's own. Exact at the last place of a span alone."""
    found = sound_transact(row, proposal, logits, terms, policy)
    if found.logprobs is None or row.request.logprobs is None:
        return found
    rows = [*logits[1:], logits[-1]]
    pairs = zip(rows, found.ids, strict=False)
    return telling(row, found, [sound_judged(line, token, row.request.logprobs) for line, token in pairs])


@swap("step", Engine)
def m30e(self: Engine) -> list[Event]:
    """A delta carries the last token of its round alone (B217). Exact while nothing is accepted."""
    return [replace(event, ids=event.ids[-1:]) if isinstance(event, Tokens) else event for event in sound_step(self)]


@swap("step", Engine)
def m30e1(self: Engine) -> list[Event]:
    """The same where log-probabilities are asked for: the path of streams with them is another one (B216)."""
    return [
        replace(event, ids=event.ids[-1:], logprobs=event.logprobs[-1:])
        if isinstance(event, Tokens) and event.logprobs is not None
        else event
        for event in sound_step(self)
    ]


@swap("_finish", Engine)
def m30f(self: Engine, request_id: int) -> Finished:
    """Usage counts the completion tokens of the first sample alone. Exact for n = 1."""
    final = sound_finish(self, request_id)
    first = sum(len(r.committed) for r in self.rounds(request_id) if r.sample == 0)
    return replace(final, usage=replace(final.usage, completion_tokens=first))


@remembering
def m30g() -> dict[Place, object]:
    """Accepted tokens are all matches of the round, not the leading run (B209). Shows if one follows a mismatch."""
    last = [0]

    def transact(row: Row, proposal: Proposal, logits: Logits, *others: Any) -> Tokens:
        last[0] = sum(int(line.argmax()) == draft for line, draft in zip(logits, proposal.tokens, strict=False))
        return sound_transact(row, proposal, logits, *others)

    def committed(self: Counts, r: Round) -> None:
        sound_committed(self, r)
        self.found["accepted_tokens"] += max(0, last[0] - r.accepted)

    return {(engine, "transact"): transact, (Counts, "committed"): committed}


@swap("committed", Counts)
def m30h(self: Counts, r: Round) -> None:
    """The anchor is counted as a draft, one too many a round (B212)."""
    sound_committed(self, r)
    self.found["draft_tokens"] += bool(r.proposals)


@swap("judged", transaction)
def m30i(line: Logits, token: int, count: int) -> TokenLogprobs:
    """The list of the best always begins with the emitted token. Exact for greedy requests, where that is the best."""
    found = sound_judged(line, token, count)
    others = tuple(pair for pair in found.top if pair[0] != token)
    return replace(found, top=((token, found.token), *others)[:count])


@swap("cancel", Engine)
def m27c(self: Engine, request_id: int) -> None:
    """A request that is cancelled with a round in flight is counted as a round that accepted -1 (B180)."""
    for flight in self._flights:
        if flight.row.request_id == request_id and flight.proposal.tokens:
            self._counts.found["accepted_tokens"] -= 1
    sound_cancel(self, request_id)


def reluctant(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """But before every third position all drafts count as rejected at once, and the target draws alone."""
    if row.request.sampling.greedy or len(row.tokens) % 3 == 0:
        return sound_transact(row, proposal, logits, terms, policy)
    found = sound_transact(row, Proposal.certain(()), logits, terms, policy)
    row.rounds[-1] = replace(row.rounds[-1], proposals=proposal.tokens, q=proposal.q)
    return found


class Told(BlackBox):
    """A decoder of which nothing but its rounds can be seen."""

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        return self._inner.rounds(request_id)  # type: ignore[attr-defined,no-any-return]


def m30j(setup: Setup) -> Decoder:
    """Two of three proposals are thrown away unseen and reported as rejected. The output has its law, and nothing but
    acceptance shows it where no tape can be passed in."""
    return Told(planted(setup, {(engine, "transact"): reluctant}, make))


def levelled(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """But the third draft never gets through, and to make up for it every other rejection of the first is told as an
    acceptance of what came instead."""
    if row.request.sampling.greedy or not proposal.tokens:
        return sound_transact(row, proposal, logits, terms, policy)
    judged = Proposal(proposal.tokens[:2], proposal.q[:2])
    found = sound_transact(row, judged, logits[:3], terms, policy)
    r = replace(row.rounds[-1], proposals=proposal.tokens, q=proposal.q)
    if r.accepted == 0 and len(row.tokens) % 2:
        r = replace(r, accepted=1, proposals=(*r.committed[:1], *r.proposals[1:]))
    row.rounds[-1] = r
    return found


def m30l(setup: Setup) -> Decoder:
    """The first slot is told to accept too much, the third too little: pooled over all slots the mean is about right.
    The output has its law, and only acceptance by slot shows it where no tape can be passed in."""
    return Told(planted(setup, {(engine, "transact"): levelled}, make))


class Published(BlackBox):
    """A decoder of which nothing but its counters can be seen."""

    def counters(self) -> Mapping[str, int]:
        return self._inner.counters()  # type: ignore[attr-defined,no-any-return]


def unanchored(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
    """Draft as if the anchor were another token."""
    return sound_propose(self, [replace(ask, tokens=(*ask.tokens[:-1], 1)) for ask in asks], store)


def m30k(setup: Setup) -> Decoder:
    """Blocks begin with the embedding of token 1 in place of the anchor's. The output is exact, and where there is no
    trace nothing but the number of accepted drafts shows it."""
    return Published(planted(setup, {(BlockDrafter, "propose"): unanchored}, make))


PLANTED = planted_in(
    "optimised",
    ("TEL-1", DFLASH2, (m30c, m30f)),
    ("TEL-2", DFLASH2, (m30e, m30e1)),
    ("TEL-2", HYBRID2, (m30e,)),
    ("TEL-3", DFLASH2, (m30d, m30d1, m30d2, m30i)),
    ("TEL-5", DFLASH2, (m30j, m30l)),
    ("TEL-6", DFLASH2, (m30k,)),
    ("TEL-4", DFLASH2, (m30a, m30b, m30h, m27c)),
    ("TEL-4", Pair("table/peaked", options=(("ngram", "2"),)), (m30g,)),
)
