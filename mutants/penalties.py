"""Faults of penalties, bias and min_tokens in a span (K08)."""

from collections.abc import Sequence
from dataclasses import replace

from specqual.contract import Decoder, Rule, Sampling, Setup, Tokens
from specqual.reference import decoder, transaction
from specqual.reference.sampling import Law, filtered, processed
from specqual.reference.transaction import Plan, Sample
from specqual.reference.verify import Uniform, Verdict

from .mutant import planted_in
from .pairs import DFLASH2
from .parameters import Drafts, Ids, sound_advance, with_sampling
from .planting import planted, replacing
from .verification import Chain, sound_law, sound_verify


def bare(wanted: Sampling) -> Sampling:
    """Without penalties and bias."""
    return replace(wanted, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, logit_bias=())


def seen(row: Law, sample: Sample, output: Ids, forbidden: Ids) -> Law:
    """The law under this history and these forbidden ids."""
    request = sample.request
    return filtered(processed(row, request.sampling, request.prompt, output, forbidden), request.sampling)


def ends(sample: Sample, length: int, eos_ids: Ids) -> Ids:
    """What is forbidden behind `length` tokens of output."""
    return eos_ids if length < sample.request.min_tokens else ()


def m08a(setup: Setup) -> Decoder:
    """Proposals are counted and not taken back when they are rejected. Silent while all are accepted."""
    rejected: dict[tuple[int, int], Drafts] = {}

    def law(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
        output = sample.output + drafts
        counted = rejected.get((sample.request_id, sample.index), ()) + output
        return seen(row, sample, counted, ends(sample, len(output), eos_ids))

    def advance(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
        after, tokens = sound_advance(sample, plan)
        done, key = after.rounds[-1], (sample.request_id, sample.index)
        rejected[key] = rejected.get(key, ()) + done.proposals[done.accepted :]
        return after, tokens

    return planted(setup, {(transaction, "_law"): law, (decoder, "advance"): advance})


@replacing("_law", transaction)
def m08b(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """A row does not see the drafts of its own span in front of it. Silent at K = 1."""
    return seen(row, sample, sample.output, ends(sample, len(sample.output + drafts), eos_ids))


@replacing("_law", transaction)
def m08c(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """The last token of the round before is counted twice from the second row on. Shows in penalties that count."""
    output = sample.output + drafts
    twice = sample.output[-1:] + output if drafts else output
    return seen(row, sample, twice, ends(sample, len(output), eos_ids))


@replacing("_law", transaction)
def m08d(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """Penalties and bias reach the first row of a span only."""
    return sound_law(row, with_sampling(sample, bare(sample.request.sampling)) if drafts else sample, drafts, eos_ids)


@replacing("_law", transaction)
def m08e(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """min_tokens forbids the end of sequence on one row too many, behind a draft only. One token wide."""
    output = sample.output + drafts
    return seen(row, sample, output, ends(sample, len(output) - bool(drafts), eos_ids))


@replacing("_law", transaction)
def m08f(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """The history lacks the newest token."""
    output = sample.output + drafts
    return seen(row, sample, output[:-1], ends(sample, len(output), eos_ids))


@replacing("_law", transaction)
def m08g(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """The end of min_tokens inside a span takes effect in the round after it."""
    return seen(row, sample, sample.output + drafts, ends(sample, len(sample.output), eos_ids))


def m08h(setup: Setup) -> Decoder:
    """Drafts are verified by the raw law, as the drafter made them; what is drawn has the processed one. It looks
    like a gain in acceptance."""
    raw: list[Law] = []

    def law(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
        if not drafts:
            raw.clear()
        raw.append(filtered(processed(row, Sampling(), (), ()), sample.request.sampling))
        return sound_law(row, sample, drafts, eos_ids)

    def verify(rule: Rule, p: Sequence[Law], drafts: Ids, q: Chain, uniform: Uniform) -> Verdict:
        accepted = sound_verify(rule, raw, drafts, q, uniform).accepted
        return sound_verify(rule, [*raw[:accepted], p[accepted]], drafts[:accepted], q[:accepted], uniform)

    return planted(setup, {(transaction, "_law"): law, (transaction, "verify"): verify})


PLANTED = planted_in(
    "reference",
    ("SMP-4", DFLASH2, (m08a, m08b, m08c, m08d, m08f, m08h)),
    ("SMP-5", DFLASH2, (m08e, m08g, m08h)),
    ("SMP-6", DFLASH2, (m08a, m08b, m08c, m08d, m08f, m08h)),
    ("SMP-7", DFLASH2, (m08a, m08b, m08f)),
)
