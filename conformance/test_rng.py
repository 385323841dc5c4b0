"""RNG: every random number decides once, and the seed contract is kept."""

from collections import Counter as Counted
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from math import log

from specqual.conformance.chapter import clause
from specqual.conformance.drive import Answer, NotOffered, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import prompt
from specqual.conformance.hazards import batch, beside
from specqual.conformance.kinds import parting
from specqual.conformance.lab import Lab, scheduled, taped
from specqual.conformance.quotas import APART
from specqual.conformance.sizes import takes
from specqual.conformance.ties import sampled_tie_of
from specqual.contract import (
    Decoder,
    Key,
    Method,
    Purpose,
    Request,
    Round,
    Rule,
    Sampling,
    Schedulable,
    SeedContract,
    Unsupported,
)
from specqual.reference.rng import Counter
from specqual.reference.tape import Recorded, decisions

SEEDS, SAMPLES = 8, 4


def sampled(lab: Lab, clause_id: str, count: int, **changes: object) -> list[Request]:
    """Requests at temperature one with seeds of their own; the end of sequence is ignored where that is honoured."""
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    chance = lab.random(clause_id)
    if lab.honours("ignore_eos"):
        changes["ignore_eos"] = True
    base = Request(prompt=(0,), max_tokens=lab.effort.span, sampling=Sampling(temperature=1.0), **changes)
    return [
        replace(
            base, prompt=prompt(lab, chance, 3 + 2 * i), seed=chance.randrange(2**32), max_tokens=base.max_tokens - i
        )
        for i in range(count)
    ]


def name(key: Key) -> str:
    return f"{key.seed}/{key.sample}/{key.round_start}/{key.position}/{key.purpose}"


def purposes(lab: Lab) -> list[Purpose]:
    """What numbers must have been drawn for, or some decision never came up."""
    if not lab.drafts or lab.claims.rule not in (Rule.RATIO, Rule.ONE_HOT):
        return [Purpose.BONUS]
    drawn = [] if lab.claims.method is Method.NGRAM else [Purpose.DRAFT]
    return [*drawn, Purpose.ACCEPT, Purpose.RESIDUAL, Purpose.BONUS]


def required(rule: Rule, r: Round, seed: int) -> list[Key]:
    """The numbers that a round's committed tokens must have come from."""
    end = r.start + 1 + len(r.committed)
    return [key for key in decisions(rule, r, seed) if key.position < end]


@clause("RNG-1")
def test_no_number_decides_twice(lab: Lab) -> Evidence:
    rule = lab.sampled_rule
    if rule is Rule.BLOCK:
        raise NotOffered("block verification: its coins are not keyed per token in the contract")
    wanted = sampled(lab, "RNG-1", 3)
    if lab.honours("n") and lab.has("samples"):
        wanted[0] = replace(wanted[0], n=2)
    recorded = Recorded(Counter())
    with taped(lab.decoder, recorded):
        answers = batch(lab, wanted)
    cases: list[Case] = []
    known = {request.seed for request in wanted}
    for answer in answers:
        seed = answer.request.seed
        due = [key for r in answer.rounds or () for key in required(rule, r, seed)]
        read = [key for key in recorded.keys if key.seed == seed or (answer is answers[0] and key.seed not in known)]
        cases.append(
            {
                "label": f"seed {seed}, n {answer.request.n}",
                "read": [name(key) for key in read],
                "required": [name(key) for key in due],
                "repeatable": rule in (Rule.NONE, Rule.SAMPLER_MATCH),
            }
        )
    due = Counted(key.rpartition("/")[2] for case in cases for key in case["required"])
    guards = [Guard(f"numbers for {purpose}", due[purpose]) for purpose in purposes(lab)]
    rounds = [r for answer in answers for r in answer.rounds or ()]
    guards += [Guard("rounds of a second sample", sum(r.sample > 0 for r in rounds))] if lab.honours("n") else []
    return Evidence("ledger", cases, [*guards, beside(lab, [answers])])


def outputs(answer: Answer) -> list[list[int]]:
    return [list(ids) for ids in answer.samples]


Compared = tuple[list[list[int]], list[list[int]], int]
"""Two outputs, and how many rounds with drafts stand behind them."""


def compared(lab: Lab, one: Answer, other: Answer) -> Compared:
    """The outputs of two answers to a request of one sample, as far as the seed contract speaks of them.

    Where equal draft lengths are its condition, that is up to the first round that drafted another number of tokens.
    """
    rounds = list(zip(one.rounds or (), other.rounds or (), strict=False))
    equal = list(takewhile(lambda pair: len(pair[0].proposals) == len(pair[1].proposals), rounds))
    drafted = sum(bool(r.proposals) for r, _ in equal)
    if lab.claims.seed is SeedContract.ALWAYS or len(equal) == len(rounds):
        return outputs(one), outputs(other), drafted
    mine, theirs = ([token for r in side for token in r.committed] for side in zip(*equal, strict=True))
    return [mine], [theirs], drafted


def alike(lab: Lab) -> Iterator[tuple[str, AbstractContextManager[Decoder]]]:
    """Decoders under which the seed contract promises the same: another commit lag, where there is one, and where it
    promises that, too, other draft lengths, drafting switched off by load, and speculation off."""
    decoder, always = lab.decoder, lab.claims.seed is SeedContract.ALWAYS and lab.longest > 0
    if isinstance(decoder, Schedulable):
        if takes(decoder, lag=1):
            yield "with a commit lag", scheduled(decoder, lag=1)
        if always:
            yield "with drafts of one token", scheduled(decoder, draft=1)
            yield "with drafting switched off", scheduled(decoder, draft=0)
    if always:
        with suppress(NotOffered, Unsupported):
            yield "with speculation off", nullcontext(lab.plain)


@clause("RNG-2")
def test_the_same_seed_gives_the_same_output_whatever_else_is_done(lab: Lab) -> Evidence:
    if lab.claims.seed is SeedContract.NONE:
        raise NotOffered("the decoder claims no seed contract")
    lab.require_fields("seed")
    first, *others = sampled(lab, "RNG-2", 3)
    wanted = [replace(first, seed=0), *others]  # zero is a seed like any other
    alone = [serve(lab.decoder, [request])[0] for request in wanted]
    cases, together, drafted, open_ = list[Case](), list[Sequence[Answer]](), 0, 0
    served = [
        (what, requests, nullcontext(lab.decoder))
        for what, requests in (("among neighbours", wanted), ("in reverse order", wanted[::-1]))
    ]
    served += [(what, wanted, decoder) for what, decoder in alike(lab)]
    for what, requests, made in (*served, ("once more", wanted[:1], nullcontext(lab.decoder))):
        with made as decoder:
            together.append(batch(lab, requests, decoder))
            found = {answer.request: answer for answer in together[-1]}
        for answer in alone[: len(requests)]:
            expected, actual, rounds = compared(lab, answer, found[answer.request])
            drafted += rounds if what != "once more" else 0
            tie = sampled_tie_of(lab, answer.request, expected[0], actual[0])
            if expected == actual or tie or lab.must_repeat:
                where = f"seed {answer.request.seed} {what}"
                cases.append({"what": where, "expected": expected, "actual": actual, **tie})
            else:
                open_ += 1  # an acceptance may have tipped: without its number, a tie cannot be told from a fault
    guards = [beside(lab, together)]
    guards += [Guard("repeated outputs that parted, and could be judged", 0, open_)] if open_ else []
    if lab.claims.seed is SeedContract.EQUAL_DRAFT_LENGTHS and alone[0].rounds and lab.drafts:
        guards.append(Guard("rounds of equal draft length", drafted))
    return Evidence("values", cases, guards)


def chance_of(lab: Lab, request: Request, output: Sequence[int]) -> float:
    """Log-probability that one more stream yields this very output."""
    lab.judge.forward((*request.prompt, *output))  # one pass serves every prefix
    laws = [lab.judge.law(request, output[:place]) for place in range(len(output))]
    return sum(log(max(float(p[token]), 1e-300)) for p, token in zip(laws, output, strict=True))


@clause("RNG-3")
def test_seeds_and_samples_are_different_streams(lab: Lab) -> Evidence:
    lab.require_fields("seed")
    base = sampled(lab, "RNG-3", 1)[0]
    seeds = [base.seed + i for i in range(SEEDS if lab.has("seeds") else 1)]
    names = [f"seed {seed}" for seed in seeds]
    found = [serve(lab.decoder, [replace(base, seed=seed)])[0].output for seed in seeds]
    families, equal = [list(range(len(seeds)))], list[tuple[int, int]]()
    guards = [Guard("different outputs under different seeds", len(set(found)), APART)]
    if lab.honours("n"):
        several = serve(lab.decoder, [replace(base, n=SAMPLES if lab.has("samples") else 1)])[0].samples
        names += [f"sample {i} of seed {base.seed}" for i in range(len(several))]
        found += several
        families.append(list(range(len(seeds), len(found))))
        guards.append(Guard("different outputs of several samples", len(set(several)), APART))
        apart = parting(found[0], several[0]) is not None and not lab.must_repeat  # RNG-2 tells ties from faults
        equal += [(0, len(seeds))] if lab.claims.seed is not SeedContract.NONE and not apart else []
    case = {
        "label": f"sampled behind {list(base.prompt)}",
        "names": names,
        "outputs": found,
        "logprob": [chance_of(lab, base, one) if found.count(one) > 1 else None for one in found],
        "families": families,
        "equal": equal,
        "alpha": lab.budget.take("RNG-3"),
    }
    return Evidence("streams", [case], guards)
