"""Faults of the end: stops inside a span (K10), the token budget (K11), sentinels taken for tokens (K12)."""

from dataclasses import replace

from specqual.contract import Event, Finished, FinishReason, Proposal, Tokens
from specqual.reference import ReferenceDecoder, decoder, transaction
from specqual.reference.transaction import Plan, Sample
from specqual.reference.verify import Verdict

from .mutant import planted_in
from .pairs import DFLASH2
from .planting import replacing

MASK = 95  # the mask id of every nano drafter
Committed = tuple[tuple[int, ...], FinishReason | None]

sound_commit, sound_ending, sound_advance = transaction._commit, transaction.ending, transaction.advance
sound_step, sound_finish = ReferenceDecoder.step, ReferenceDecoder._finish


def _span(proposal: Proposal, verdict: Verdict) -> tuple[int, ...]:
    return (*proposal.tokens[: verdict.accepted], verdict.token)


@replacing("_commit", transaction)
def m10a(sample: Sample, proposal: Proposal, verdict: Verdict, plan: Plan) -> Committed:
    """Only the last committed token is tested. Silent when the end of sequence falls on the bonus position."""
    span = _span(proposal, verdict)
    return span, sound_ending(sample, span, plan)


@replacing("_commit", transaction)
def m10b(sample: Sample, proposal: Proposal, verdict: Verdict, plan: Plan) -> Committed:
    """The cut comes one token late: what stood behind the stop token in the span is emitted with it."""
    kept, reason = sound_commit(sample, proposal, verdict, plan)
    if reason is FinishReason.STOP:
        kept = _span(proposal, verdict)[: len(kept) + 1]
    return kept, reason


@replacing("ending", transaction)
def m10c(sample: Sample, new: tuple[int, ...], plan: Plan) -> FinishReason | None:
    """A stop string is looked for in the text of the round alone. Missed when it spans two rounds."""
    request = sample.request
    plain = replace(sample, request=replace(request, stop_strings=()))
    reason = sound_ending(plain, new, plan)
    if reason is None and plan.text is not None and any(stop in plan.text.decode(new) for stop in request.stop_strings):
        return FinishReason.STOP
    return reason


@replacing("_commit", transaction)
def m10d(sample: Sample, proposal: Proposal, verdict: Verdict, plan: Plan) -> Committed:
    """The token that ends the output is taken off it."""
    kept, reason = sound_commit(sample, proposal, verdict, plan)
    return (kept[:-1], reason) if reason is FinishReason.STOP else (kept, reason)


@replacing("ending", transaction)
def m10e(sample: Sample, new: tuple[int, ...], plan: Plan) -> FinishReason | None:
    """Only the end of sequence is honoured; the request's own stop ids are not looked at."""
    return sound_ending(replace(sample, request=replace(sample.request, stop_ids=())), new, plan)


@replacing("ending", transaction)
def m10f(sample: Sample, new: tuple[int, ...], plan: Plan) -> FinishReason | None:
    """A stop on the very last token of the budget is called a length."""
    length = transaction.headroom(sample, plan.target.max_context) == len(new)
    return FinishReason.LENGTH if length else sound_ending(sample, new, plan)


@replacing("_commit", transaction)
def m05d(sample: Sample, proposal: Proposal, verdict: Verdict, plan: Plan) -> Committed:
    """A bonus is drawn although the last accepted draft ended the output."""
    span = _span(proposal, verdict)
    kept, reason = sound_commit(sample, proposal, verdict, plan)
    full = proposal.tokens and verdict.accepted == len(proposal.tokens)
    return (span, reason) if full and len(kept) == len(span) - 1 else (kept, reason)


@replacing("advance", decoder)
def m11a(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
    """The budget is tested between rounds only, so the last round may overshoot it by its whole span."""
    request = sample.request
    unbounded = replace(request, max_tokens=request.max_tokens + plan.draft_length + 1)
    after, tokens = sound_advance(replace(sample, request=unbounded), plan)
    full = after.reason is None and len(after.output) >= request.max_tokens
    return replace(after, request=request, reason=FinishReason.LENGTH if full else after.reason), tokens


@replacing("advance", decoder)
def m11b(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
    """The budget counts rounds, not tokens. Exact while nothing is accepted."""
    request = sample.request
    unbounded = replace(request, max_tokens=request.max_tokens * (plan.draft_length + 1))
    after, tokens = sound_advance(replace(sample, request=unbounded), plan)
    full = after.reason is None and len(after.rounds) >= request.max_tokens
    return replace(after, request=request, reason=FinishReason.LENGTH if full else after.reason), tokens


@replacing("headroom", transaction)
def m11c(sample: Sample, max_context: int) -> int:
    """The first token, which the prefill commits, is not counted: one token too many."""
    return min(sample.request.max_tokens + 1 - len(sample.output), max_context - len(sample.tokens))


@replacing("_finish", ReferenceDecoder)
def m11d(self: ReferenceDecoder, request_id: int) -> Finished:
    """Usage counts drafts that were accepted and then cut off."""
    final = sound_finish(self, request_id)
    over = sum(max(0, r.accepted + 1 - len(r.committed)) for r in self.rounds(request_id))
    return replace(final, usage=replace(final.usage, completion_tokens=final.usage.completion_tokens + over))


@replacing("advance", decoder)
def m12a(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
    """Mask ids are deleted from what is emitted. Shows when the target itself says that token."""
    after, tokens = sound_advance(sample, plan)
    return after, replace(tokens, ids=tuple(token for token in tokens.ids if token != MASK))


@replacing("_commit", transaction)
def m12b(sample: Sample, proposal: Proposal, verdict: Verdict, plan: Plan) -> Committed:
    """The scan for stop ids runs over the rejected drafts, too, which still lie behind the committed length."""
    kept, reason = sound_commit(sample, proposal, verdict, plan)
    rejected = proposal.tokens[verdict.accepted :]
    stops = {*sample.request.stop_ids, *(() if sample.request.ignore_eos else plan.target.eos_ids)}
    return kept, FinishReason.STOP if reason is None and stops.intersection(rejected) else reason


@replacing("advance", decoder)
def m12c(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
    """Token 0 marks unused places of the output buffer, so a zero is never emitted."""
    after, tokens = sound_advance(sample, plan)
    return after, replace(tokens, ids=tuple(token for token in tokens.ids if token != 0))


@replacing("step", ReferenceDecoder)
def m12d(self: ReferenceDecoder) -> list[Event]:
    """Zeros at the end of a round's tokens are taken for padding and trimmed, while usage still counts them."""
    events = sound_step(self)
    return [replace(event, ids=_trimmed(event.ids)) if isinstance(event, Tokens) else event for event in events]


def _trimmed(ids: tuple[int, ...]) -> tuple[int, ...]:
    while ids and ids[-1] == 0:
        ids = ids[:-1]
    return ids


PLANTED = planted_in(
    "reference",
    ("FIN-1", DFLASH2, (m10a, m10d, m10e, m10f, m12d)),
    ("FIN-2", DFLASH2, (m05d, m10a, m10b, m11d, m12b)),
    ("FIN-3", DFLASH2, (m11a, m11b, m11c)),
    ("FIN-5", DFLASH2, (m10c,)),
    ("FIN-6", DFLASH2, (m12a, m12c)),
)
