"""One round of one sample as a function: propose, verify, accept, commit. A sample goes in, a longer one comes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from specqual.contract import (
    FinishReason,
    Key,
    Proposal,
    Purpose,
    Request,
    Round,
    Rule,
    Sampling,
    Tape,
    TokenLogprobs,
    Tokens,
)

from .sampling import Law, filtered, order, processed
from .target import Target
from .text import Text
from .verify import Verdict, dense, lawful, verify


@dataclass(frozen=True, slots=True)
class Sample:
    """One of a request's n outputs. `features` are the target's hidden states of every token before the anchor."""

    request_id: int
    request: Request
    index: int
    output: tuple[int, ...] = ()
    features: tuple[Tensor, ...] = ()
    rounds: tuple[Round, ...] = ()
    reason: FinishReason | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and committed output, the anchor last."""
        return self.request.prompt + self.output


Propose = Callable[[Sample, int, Callable[[int], float]], Proposal]
"""(sample, most drafts wanted, uniform number by slot) -> drafts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round is run with; `propose` None drafts nothing."""

    target: Target
    rule: Rule
    tape: Tape
    draft_length: int
    propose: Propose | None
    keep_features: bool
    text: Text | None


def headroom(sample: Sample, max_context: int) -> int:
    """The most tokens that a sample may still commit before max_tokens or the end of the context."""
    return min(sample.request.max_tokens - len(sample.output), max_context - len(sample.tokens))


def advance(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
    """Run one round; the first one is the prefill, which drafts nothing and commits one token."""
    request, target = sample.request, plan.target
    first = len(sample.tokens)  # the first undecided position; the anchor is right before it

    def uniform(purpose: Purpose, slot: int, start: int = first) -> float:
        return plan.tape.uniform(Key(request.seed, sample.index, start, first + slot, purpose))

    def judge(purpose: Purpose, slot: int) -> float:
        if request.sampling.greedy:
            return 0.0  # laws are one-hot: any number decides alike, so none is used
        return uniform(purpose, slot, first + slot if rule is Rule.SAMPLER_MATCH else first)

    rule = Rule.SAMPLER_MATCH if request.sampling.greedy else plan.rule
    proposal = Proposal.certain(())
    longest = min(plan.draft_length, headroom(sample, target.max_context) - 1)
    if sample.rounds and longest > 0 and plan.propose is not None:
        offered = plan.propose(sample, longest, lambda slot: uniform(Purpose.DRAFT, slot))
        proposal = offered if lawful(offered, target.vocab_size, longest) else proposal
    forward = target.forward(sample.tokens + proposal.tokens)
    raw = forward.logits[first - 1 :].double().cpu().numpy()  # [K + 1, V]
    p = [_law(row, sample, proposal.tokens[:slot], target.eos_ids) for slot, row in enumerate(raw)]
    q = [dense(law, p[0]) for law in proposal.q]
    verdict = verify(rule, p, proposal.tokens, q, judge)
    committed, reason = _commit(sample, proposal, verdict, plan)
    done = Round(
        sample.request_id,
        sample.index,
        first - 1,
        sample.tokens[-1],
        proposal.tokens,
        proposal.q,
        verdict.accepted,
        committed,
    )
    kept = tuple(states[: first + len(committed) - 1] for states in forward.hidden) if plan.keep_features else ()
    logprobs = None
    if request.logprobs is not None:
        logprobs = tuple(_logprobs(row, token, request.logprobs) for row, token in zip(raw, committed, strict=False))
    after = replace(
        sample, output=sample.output + committed, features=kept, rounds=(*sample.rounds, done), reason=reason
    )
    return after, Tokens(sample.request_id, committed, sample.index, logprobs)


def _law(row: Law, sample: Sample, drafts: tuple[int, ...], eos_ids: Sequence[int]) -> Law:
    request, output = sample.request, sample.output + drafts
    forbidden = eos_ids if len(output) < request.min_tokens else ()
    return filtered(processed(row, request.sampling, request.prompt, output, forbidden), request.sampling)


def _commit(
    sample: Sample, proposal: Proposal, verdict: Verdict, plan: Plan
) -> tuple[tuple[int, ...], FinishReason | None]:
    span = (*proposal.tokens[: verdict.accepted], verdict.token)
    for count in range(1, len(span) + 1):
        reason = ending(sample, span[:count], plan)
        if reason is not None:
            return span[:count], reason
    return span, None


def ending(sample: Sample, new: tuple[int, ...], plan: Plan) -> FinishReason | None:
    """Why a sample ends with the last of its new tokens, or None."""
    request, output = sample.request, sample.output + new
    if new[-1] in request.stop_ids or (new[-1] in plan.target.eos_ids and not request.ignore_eos):
        return FinishReason.STOP
    if request.stop_strings and plan.text is not None:
        text = plan.text.decode(output)
        if any(stop in text for stop in request.stop_strings):
            return FinishReason.STOP
    return FinishReason.LENGTH if headroom(sample, plan.target.max_context) == len(new) else None


def raw_logprobs(row: Law) -> Law:
    """Log-probabilities [V] (nats) of logits [V] as they are: temperature one, no filters."""
    x = processed(row, Sampling(), (), ())
    x = x - x.max()
    return np.asarray(x - np.log(np.exp(x).sum()))


def _logprobs(row: Law, token: int, count: int) -> TokenLogprobs:
    logp = raw_logprobs(row)
    return TokenLogprobs(float(logp[token]), tuple((int(i), float(logp[i])) for i in order(logp)[:count]))
