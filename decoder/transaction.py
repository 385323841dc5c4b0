"""Accept and commit for one row, whoever drafted: a proposal and the target's logits in, committed tokens out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specqual.contract import (
    FinishReason,
    Key,
    Proposal,
    Purpose,
    Round,
    Rule,
    Sampling,
    Tape,
    TokenLogprobs,
    Tokens,
)

from .row import Row
from .sampling import Logits, best, falling, law, logprobs, shaped
from .sampling import Row as Law
from .text import Text
from .verify import Verdict, matched, verify


@dataclass(frozen=True, slots=True)
class Terms:
    """What every transaction of a decoder is held to."""

    rule: Rule
    tape: Tape
    eos_ids: tuple[int, ...]
    max_context: int
    text: Text | None


def numbers(row: Row, terms: Terms, first: int) -> Callable[[Purpose, int], float]:
    """The numbers of a round whose first undecided position is `first`; greedy rows use none.

    Under the sampler-match rule the target's own draw does not know how rounds were cut.
    """

    def uniform(purpose: Purpose, slot: int) -> float:
        if row.request.sampling.greedy:
            return 0.0
        free = terms.rule is Rule.SAMPLER_MATCH and purpose is not Purpose.DRAFT
        start = first + slot if free else first
        return terms.tape.uniform(Key(row.request.seed, row.index, start, first + slot, purpose))

    return uniform


def transact(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """Judge a proposal by the logits [K + 1, V] behind anchor and drafts, and commit to the row."""
    told = commit(row, proposal, verdict_of(row, proposal, logits, terms), terms, policy)
    count = row.request.logprobs
    if count is None:
        return told
    pairs = zip(logits, told.ids, strict=False)
    return replace(told, logprobs=tuple(judged(line, token, count) for line, token in pairs))


def verdict_of(row: Row, proposal: Proposal, logits: Logits, terms: Terms) -> Verdict:
    """What logits [K + 1, V] say of a proposal.

    A greedy row's laws are one-hot, so every rule would accept the same drafts, and none is asked.
    """
    request, drafts = row.request, proposal.tokens

    def context(slot: int) -> tuple[Sampling, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        output = row.output + drafts[:slot]
        forbidden = terms.eos_ids if len(output) < request.min_tokens else ()
        return request.sampling, request.prompt, output, forbidden

    def p(slot: int) -> Law:
        return law(shaped(logits[slot].astype(np.float64), *context(slot)), request.sampling)

    if request.sampling.greedy:
        return matched(lambda slot: best(logits[slot], *context(slot)), drafts)
    return verify(terms.rule, p, proposal, numbers(row, terms, len(row.tokens)))


def commit(row: Row, proposal: Proposal, verdict: Verdict, terms: Terms, policy: Mapping[str, int]) -> Tokens:
    """Commit to the row what a verdict, whoever came to it, leaves of a proposal."""
    committed, reason = cut(row, (*proposal.tokens[: verdict.accepted], verdict.token), terms)
    row.rounds.append(
        Round(
            row.request_id,
            row.index,
            len(row.tokens) - 1,
            row.tokens[-1],
            proposal.tokens,
            proposal.q,
            verdict.accepted,
            committed,
            row.forwards,
            policy,
        )
    )
    row.reason, row.output, row.forwards = reason, row.output + committed, 0
    return Tokens(row.request_id, committed, row.index)


def cut(row: Row, span: Sequence[int], terms: Terms) -> tuple[tuple[int, ...], FinishReason | None]:
    """The part of a span that is committed: up to and with the token that ends the sample, and why it ends."""
    request, room = row.request, row.headroom(terms.max_context)
    for count, token in enumerate(span, 1):
        new = tuple(span[:count])
        if token in request.stop_ids or (token in terms.eos_ids and not request.ignore_eos):
            return new, FinishReason.STOP
        if request.stop_strings and terms.text is not None:
            text = terms.text.decode(row.output + new)
            if any(stop in text for stop in request.stop_strings):
                return new, FinishReason.STOP
        if count == room:
            return new, FinishReason.LENGTH
    return tuple(span), None


def judged(line: Logits, token: int, count: int) -> TokenLogprobs:
    """The log-probability of a token under a raw row [V], and those of the `count` most probable ones."""
    logp = logprobs(line.astype(np.float64))
    return TokenLogprobs(float(logp[token]), tuple((int(i), float(logp[i])) for i in falling(logp)[:count]))
