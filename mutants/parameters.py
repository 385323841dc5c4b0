"""Faults of sampling parameters in rows of one batch (K06)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specqual.conformance.veil import BlackBox
from specqual.contract import Claims, Decoder, InvalidRequest, Limits, Request, Sampling, Setup, Tokens
from specqual.reference import ReferenceDecoder, decoder, make, transaction
from specqual.reference.sampling import Law, point
from specqual.reference.transaction import Plan, Sample

from .mutant import planted_in
from .pairs import DFLASH2
from .planting import planted, replacing
from .verification import sound_law

Drafts = tuple[int, ...]
Ids = Sequence[int]

sound_advance, sound_validate = decoder.advance, decoder.validate
sound_plan = vars(ReferenceDecoder)["_plan"]


def with_sampling(sample: Sample, sampling: Sampling) -> Sample:
    return replace(sample, request=replace(sample.request, sampling=sampling))


def among(setup: Setup, batch: list[Request], law: Any) -> Decoder:
    """A decoder whose laws may look at the requests of the whole batch, which are put into `batch`, in order."""

    def plan(self: ReferenceDecoder) -> Plan:
        batch[:] = [live.request for live in self._live.values()]
        return sound_plan.fget(self)

    return planted(setup, {(ReferenceDecoder, "_plan"): property(plan), (transaction, "_law"): law})


def m06a(setup: Setup) -> Decoder:
    """Whether all rows are greedy is read from row 0. Shows in sampled rows behind a greedy one."""
    batch: list[Request] = []

    def law(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
        wanted = sample.request.sampling
        wanted = replace(wanted, temperature=0.0) if batch[0].sampling.greedy else wanted
        return sound_law(row, with_sampling(sample, wanted), drafts, eos_ids)

    return among(setup, batch, law)


@replacing("_law", transaction)
def m06b(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """Temperature one counts as not set, and that as greedy, though top_k is set."""
    wanted = sample.request.sampling
    wanted = replace(wanted, temperature=0.0) if wanted.temperature == 1.0 and wanted.top_k else wanted
    return sound_law(row, with_sampling(sample, wanted), drafts, eos_ids)


@replacing("_law", transaction)
def m06c(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """Filters are applied, and then the best token of what is left is taken. Shows wherever there is a filter."""
    found, wanted = sound_law(row, sample, drafts, eos_ids), sample.request.sampling
    filters = wanted.top_k or wanted.top_p < 1 or wanted.min_p
    return point(int(found.argmax()), found) if filters else found


def m06d(setup: Setup) -> Decoder:
    """The best token of a greedy row is read after the columns were sorted for the sampled rows: a place, not an id."""
    batch: list[Request] = []

    def law(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
        found, wanted = sound_law(row, sample, drafts, eos_ids), sample.request.sampling
        mixed = any(request.sampling.top_k and not request.sampling.greedy for request in batch)
        return point(0, found) if wanted.greedy and mixed else found

    return among(setup, batch, law)


@dataclass(slots=True)
class Flat:
    """Where the rows of one tick stand when all their positions are written one after the other."""

    live: list[tuple[int, int]] = field(default_factory=list)  # samples that are still running, in order
    samplings: list[Sampling] = field(default_factory=list)
    begin: int = 0


def m06e(setup: Setup) -> Decoder:
    """Parameters are repeated K + 1 times for each row, though rows drafted fewer, so that rows get those of rows in
    front of them. Exact while all draft K tokens."""
    flat = Flat()

    def plan(self: ReferenceDecoder) -> Plan:
        flat.live = [
            (sample.request_id, sample.index)
            for live in self._live.values()
            for sample in live.samples
            if sample.reason is None
        ]
        return sound_plan.fget(self)

    def law(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
        place = (flat.begin + len(drafts)) // (width + 1)
        wanted = flat.samplings[min(place, len(flat.samplings) - 1)]
        wanted = wanted if wanted.greedy == sample.request.sampling.greedy else sample.request.sampling
        return sound_law(row, with_sampling(sample, wanted), drafts, eos_ids)

    def advance(sample: Sample, plan: Plan) -> tuple[Sample, Tokens]:
        if flat.live and flat.live[0] == (sample.request_id, sample.index):
            flat.samplings.clear()
            flat.begin = 0
        flat.samplings.append(sample.request.sampling)
        after, tokens = sound_advance(sample, plan)
        flat.begin += len(after.rounds[-1].proposals) + 1
        return after, tokens

    swaps = {
        (ReferenceDecoder, "_plan"): property(plan),
        (transaction, "_law"): law,
        (decoder, "advance"): advance,
    }
    found = planted(setup, swaps)
    width = found.claims.limits.max_draft
    return found


@replacing("_law", transaction)
def m06f(row: Law, sample: Sample, drafts: Drafts, eos_ids: Ids) -> Law:
    """min_p is taken and dropped without a word."""
    return sound_law(row, with_sampling(sample, replace(sample.request.sampling, min_p=0.0)), drafts, eos_ids)


def m06g(setup: Setup) -> Decoder:
    """min_p is refused, though it is claimed."""

    def validate(request: Request, limits: Limits) -> None:
        sound_validate(request, limits)
        if request.sampling.min_p:
            raise InvalidRequest("min_p", "is not supported")

    return planted(setup, {(decoder, "validate"): validate})


class Narrow(BlackBox):
    """A decoder that claims neither min_p nor logprobs, and refuses both by name."""

    @property
    def claims(self) -> Claims:
        claims = super().claims
        return replace(claims, sampling=claims.sampling - {"min_p", "logprobs"})

    def submit(self, request: Request) -> int:
        for name, given in (("min_p", request.sampling.min_p > 0), ("logprobs", request.logprobs is not None)):
            if given:
                self.refuse(name)
        return super().submit(replace(request, logprobs=None, sampling=replace(request.sampling, min_p=0.0)))

    def refuse(self, name: str) -> None:
        raise InvalidRequest(name, "is not honoured by this decoder")


class Silent(Narrow):
    """The same, but what is not honoured is dropped without a word."""

    def refuse(self, name: str) -> None:
        pass


class Misnamed(Narrow):
    """The same, but the error names no field."""

    def refuse(self, name: str) -> None:
        raise InvalidRequest("request", "is not supported")


def narrow(setup: Setup) -> Decoder:
    return Narrow(make(setup))


def narrow_silent(setup: Setup) -> Decoder:
    return Silent(make(setup))


def narrow_misnamed(setup: Setup) -> Decoder:
    return Misnamed(make(setup))


PLANTED = planted_in(
    "reference",
    ("SMP-1", DFLASH2, (m06d,)),
    ("SMP-2", DFLASH2, (m06a, m06e)),
    ("SMP-3", DFLASH2, (m06a, m06b, m06c, m06e, m06f)),
    ("SMP-8", DFLASH2, (m06g,)),
)
