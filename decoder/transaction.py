"""Accept and commit for one row, whoever drafted: a proposal and the target's logits in, committed tokens out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
from .verify import matched, verify


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
    """Judge a proposal by the logits [K + 1, V] behind anchor and drafts, and commit to the row.

    A greedy row's laws are one-hot, so every rule would accept the same drafts, and none is asked.
    """
    request, first, drafts = row.request, len(row.tokens), proposal.tokens

    def context(slot: int) -> tuple[Sampling, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        output = row.output + drafts[:slot]
        forbidden = terms.eos_ids if len(output) < request.min_tokens else ()
        return request.sampling, request.prompt, output, forbidden

    def p(slot: int) -> Law:
        return law(shaped(logits[slot].astype(np.float64), *context(slot)), request.sampling)

    if request.sampling.greedy:
        verdict = matched(lambda slot: best(logits[slot], *context(slot)), drafts)
    else:
        verdict = verify(terms.rule, p, proposal, numbers(row, terms, first))
    span = (*proposal.tokens[: verdict.accepted], verdict.token)
    committed, row.reason = cut(row, span, terms)
    row.rounds.append(
        Round(
            row.request_id,
            row.index,
            first - 1,
            row.tokens[-1],
            proposal.tokens,
            proposal.q,
            verdict.accepted,
            committed,
            row.forwards,
            policy,
        )
    )
    row.output, row.forwards = row.output + committed, 0
    told = None
    if request.logprobs is not None:
        told = tuple(judged(line, token, request.logprobs) for line, token in zip(logits, committed, strict=False))
    return Tokens(row.request_id, committed, row.index, told)


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
