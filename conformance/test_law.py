"""LAW: sampled output has the target's law, decided exactly wherever the decoder lets a tape in."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from specqual import fixtures, reference
from specqual.conformance.blackbox import BATCH, Watched, gather
from specqual.conformance.cells import Exploration
from specqual.conformance.chapter import clause
from specqual.conformance.contexts import TINY, TINY_DRAFTS, drafter_of, telling
from specqual.conformance.coupling import partings
from specqual.conformance.draws import PARAMETERS, case_of, counted, slack_of
from specqual.conformance.drive import Answer, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import laws, prompt, smallest
from specqual.conformance.hazards import parameters, speculation, traced
from specqual.conformance.judge import Judge
from specqual.conformance.kinds import cells, counts
from specqual.conformance.lab import Lab, scripted, taped
from specqual.conformance.longlaw import Arm, Pairs, listen
from specqual.conformance.origin import explained, served_again
from specqual.conformance.rounding import number
from specqual.conformance.scripts import SHAPES, sampled
from specqual.conformance.tapes import Edges
from specqual.conformance.verdicts import Profile, Verdict
from specqual.conformance.wholelaw import drafted_cases, guards, scripted_cases, tabled
from specqual.contract import (
    Decoder,
    Proposal,
    Request,
    Rule,
    Sampling,
    ScriptContext,
    Taped,
    Traced,
    Unsupported,
)
from specqual.reference.law import law, stream_law, target_law
from specqual.reference.rng import Counter
from specqual.reference.tape import Recorded

SHARP = {"temperature": 0.8, "top_k": 8}  # not one, so that temperatures of p and q cannot be confused
PROMPTS, TRIED = 2, 64  # that a black box is asked, and that they are chosen from
FEW = 3  # drafts of one scripted round: enough for a rejection in the middle, few enough to enumerate


def sampled_requests(lab: Lab, clause_id: str, tokens: int) -> list[Request]:
    """One request for each set of sampling parameters that the decoder honours, each with a seed of its own."""
    chance, found = lab.random(clause_id), []
    for sampling in laws(lab, PARAMETERS):
        seed = chance.randrange(2**32)
        ids = prompt(lab, chance, 4 + len(found))
        found.append(Request(prompt=ids, max_tokens=tokens, sampling=sampling, seed=seed))
    return found


def coupled_requests(lab: Lab) -> list[Request]:
    """Long sampled requests, every second one with two samples: some hundred tokens, or thousands in a thorough run."""
    found = list[Request]()
    for turn in range(4 if lab.thorough else 1):
        found += sampled_requests(lab, f"LAW-4/{turn}", lab.effort.tokens)
    several = lab.honours("n")
    return [replace(request, n=2) if several and place % 2 else request for place, request in enumerate(found)]


def rule_of(lab: Lab) -> Rule:
    """The claimed rule, if the judge can follow it number by number."""
    rule = lab.sampled_rule
    if rule is Rule.BLOCK:
        raise NotOffered("block verification: its coins are not keyed per token in the contract")
    return rule


WEIGHTS = st.tuples(*[st.integers(0, 4)] * 3).filter(any)
TABLES = st.lists(WEIGHTS, min_size=1, max_size=4)  # laws of three tokens, looked up by what stands before
RULES = (Rule.NONE, Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH, Rule.BLOCK)


@clause("LAW-1")
def test_the_judges_rules_reproduce_the_target_over_fractions(lab: Lab) -> Evidence:
    """Hypothesis draws laws and rules: zeros, ties and disjoint supports among them."""
    cases: list[Case] = []

    def wrong(drawn: tuple[Rule, list[tuple[int, ...]], list[tuple[int, ...]]]) -> bool:
        rule, targets, drafters = drawn

        def p(prefix: tuple[int, ...]) -> np.ndarray:
            return law(*targets[(sum(prefix) + 2 * len(prefix)) % len(targets)])

        def q(prefix: tuple[int, ...]) -> np.ndarray:
            return law(*drafters[(sum(prefix) + 3 * len(prefix)) % len(drafters)])

        expected, actual = (
            [[list(tokens), str(mass)] for tokens, mass in sorted(found.items())]
            for found in (target_law(p, 3), stream_law(p, q, 0 if rule is Rule.NONE else 2, rule, tokens=3))
        )
        what = f"{rule}, p from {targets}, q from {drafters}: joint law of three tokens"
        cases.append({"what": what, "expected": expected, "actual": actual})
        return expected != actual

    drawn = st.tuples(st.sampled_from(RULES), TABLES, TABLES)
    found = smallest(drawn, wrong, 3 * lab.effort.examples, lab.random("LAW-1"))
    if found is not None:
        drawn = len(cases)
        wrong(found)  # once more, to stand last
        return Evidence("values", [cases[-1] | {"shrunk": f"from one of {drawn} that were drawn"}])
    return Evidence("values", cases)


@clause("LAW-2")
def test_every_sampled_decision_follows_from_its_number(lab: Lab) -> Evidence:
    rule, cases, answers = rule_of(lab), [], list[Answer]()
    for request in sampled_requests(lab, "LAW-2", lab.effort.tokens // 2):
        recorded = Recorded(Counter())
        with taped(lab.decoder, recorded):
            answers.append(serve(lab.decoder, [request])[0])
        numbers = dict(recorded.asked)
        cases.append(case_of(lab, answers[-1], numbers.get, label=f"{rule}, {request.sampling}"))
    guards = [Guard("numbers drawn", sum(len(case["decisions"]) for case in cases)), *parameters(lab, answers)]
    guards += speculation(lab, answers) if lab.drafts else []
    return Evidence("draws", cases, guards)


@clause("LAW-3")
def test_decisions_at_the_edge_of_scripted_drafts_are_right(lab: Lab) -> Evidence:
    rule, decoder, cases, answers = rule_of(lab), lab.decoder, [], list[Answer]()
    chance = lab.random("LAW-3")
    requests = sampled_requests(lab, "LAW-3", lab.effort.span)
    for place, shape in enumerate(SHAPES if lab.has("wrong-drafts") else ("equal",) * len(SHAPES)):
        request = requests[place % len(requests)]
        edges = Edges(rule, chance, min(0.25, 4 * slack_of(lab)))
        drafter = sampled(lambda ids, r=request: lab.judge.law(r, ids[len(r.prompt) :]), shape, chance)

        def script(context: ScriptContext, r: Request = request, e: Edges = edges, d: object = drafter) -> Proposal:
            proposal = d(replace(context, max_draft=min(FEW, context.max_draft)))
            output = context.tokens[len(r.prompt) :]
            lab.judge.forward((*context.tokens, *proposal.tokens))  # one pass serves every slot
            laws = [lab.judge.law(r, (*output, *proposal.tokens[:i])) for i in range(len(proposal.tokens) + 1)]
            e.offer(len(context.tokens), proposal, laws)
            return proposal

        with taped(decoder, edges), scripted(decoder, script):
            answer = serve(decoder, [request])[0]
        label = f"{rule}, drafts {shape}, {request.sampling}"
        cases.append(case_of(lab, answer, edges.given.get, label=label, scripted=True))
        answers.append(answer)
    guards = [Guard("bonus tokens", counted(cases, "bonus")), *speculation(lab, answers)]
    return Evidence("draws", cases, guards)


def differing(case: Case) -> list[int]:
    """The samples whose tokens are not the expected ones."""
    pairs = zip(case["expected"], case["actual"], strict=True)
    return [sample for sample, (expected, actual) in enumerate(pairs) if expected != actual]


@clause("LAW-4")
def test_sampled_output_equals_the_references_on_the_same_tape(lab: Lab) -> Evidence:
    rule_of(lab)
    twin = guarded("the reference", lambda: reference.make(replace(lab.run.setup, dtype="float64", options={})), 600.0)
    if twin.claims.method != lab.claims.method or twin.claims.limits.max_draft != lab.longest:
        raise NotOffered("the reference decoder has no drafter like this one, so its drafts would differ")
    cases, answers, tape = list[Case](), list[Answer](), Counter()
    for request in coupled_requests(lab):
        for decoder in (twin, lab.decoder):
            with taped(decoder, tape):
                answers.append(serve(decoder, [request])[0])
        expected, actual = ([list(ids) for ids in answer.samples] for answer in answers[-2:])
        cases.append({"what": f"seed {request.seed}, {request.sampling}", "expected": expected, "actual": actual})
    apart = [place for place, case in enumerate(cases) if case["expected"] != case["actual"]]
    told = {"tokens": sum(len(ids) for answer in answers[1::2] for ids in answer.samples)}

    def again(place: int) -> Case | None:
        with taped(lab.decoder, tape):
            return served_again(lab, lab.decoder, [answers[2 * place].request], number=tape.uniform)

    if not apart or number(lab.claims.dtype) is None or not isinstance(lab.decoder, Traced):
        return explained(lab, Evidence("values", cases, notes=told), again)
    own = [
        case_of(lab, answer, tape.uniform, label=f"the decoder's own path, {answer.request.sampling}")
        for answer in answers[1::2]
    ]
    found = [
        (place, one)
        for place in apart
        for one in partings(lab, answers[2 * place], answers[2 * place + 1], tape.uniform)
    ]
    led = {(place, one.sample) for place, one in found}
    unled = [place for place in apart if any((place, sample) not in led for sample in differing(cases[place]))]
    if unled:  # no round differs, so that there is nothing for rounding to have done
        return explained(lab, Evidence("values", [cases[p] for p in unled], notes=told), lambda i: again(unled[i]))
    for place, one in found:
        own[place]["decisions"] += one.decisions
        own[place].setdefault("partings", []).append(one.case())
    told["rounding leads away from the reference"] = [f"{cases[place]['what']}, {one}" for place, one in found]
    return explained(lab, Evidence("draws", own, notes=told), again)


@clause("LAW-5")
def test_the_whole_transaction_has_the_targets_law_exactly(lab: Lab) -> Evidence:
    rule, cases, found = rule_of(lab), list[Case](), list[Exploration]()

    def violated(measured: Iterator[tuple[Case, Exploration]]) -> bool:
        for case, one in measured:
            cases.append(case)
            found.append(one)
            if cells.decide([case]).verdict is Verdict.VIOLATED:
                return True  # the cells of a wrong law are many, and one is enough
        return False

    with tabled(lab) as decoder:
        seam = "scripted drafts"
        if not violated(scripted_cases(lab, rule, decoder)):
            try:
                violated(drafted_cases(lab, rule))
                seam = "scripted drafts and drafts of its own"
            except NotOffered as reason:
                seam = f"scripted drafts alone: {reason}"
    return Evidence("cells", cases, guards(lab, found) if decoder.claims.limits.max_draft else [], {"seam": seam})


@clause("LAW-6")
def test_the_law_of_sampled_tokens_is_the_targets_behind_telling_prompts(lab: Lab) -> Evidence:
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    if isinstance(lab.decoder, Taped) and lab.run.profile is not Profile.CERTIFY:
        raise NotOffered("decided exactly by LAW-2 to LAW-5; statistics are for decoders without a tape")
    decoder, judge, draft, name = lab.decoder, lab.judge, lab.run.setup.draft, lab.run.setup.target.name
    if lab.claims.limits.vocab_size > 256:
        name, method = TINY, TINY_DRAFTS.get(lab.claims.method)
        draft = fixtures.path(method) if draft is not None and method is not None else None
        decoder = lab.tiny(target=fixtures.path(name), draft=draft)
        judge = Judge.of(fixtures.path(name))
    nats, chance, alpha = lab.envelope(decoder, judge), lab.random("LAW-6"), lab.budget.take("LAW-6")
    wanted = {name: value for name, value in SHARP.items() if name in decoder.claims.sampling}
    found = telling(
        judge, drafter_of(judge, draft, lab.claims.draft_format), Sampling(**wanted), chance, PROMPTS, TRIED
    )
    # with 3 tokens left to it, a round can draft the second and end with a bonus; with 4 it can draft the third as well
    asked = [replace(request, max_tokens=budget) for request in found for budget in (3, 4)]
    each, share = lab.effort.samples // len(asked), counts.share(alpha, len(asked))
    watched = [Watched.of(judge, request, nats, each, share) for request in asked]
    seen = gather(decoder, watched, chance, alpha)
    cases = [one.case(name, alpha, lab.effort.wanted) for one in watched]
    live = decoder.claims.limits.max_draft and lab.drafts
    guards = [traced(lab, "acceptances", seen.accepted), traced(lab, "rejections", seen.rejected)] if live else []
    return Evidence("counts", cases, guards, {"sampling": str(found[0].sampling)})


def unspeculative(lab: Lab) -> tuple[Decoder, float, str]:
    """The arm that long outputs are compared with: the engine with speculation off or, where that is no other engine,
    the reference; what rounding may do to its law (nats), and what it is."""
    with suppress(NotOffered, Unsupported):
        if lab.longest:
            return lab.plain, lab.envelope(), "the engine without speculation"
    setup = replace(lab.run.setup, draft=None, draft_length=None, rule=Rule.NONE, dtype="float64", options={})
    return guarded("the reference", lambda: reference.make(setup), 600.0), 0.0, "the reference"


@clause("LAW-7")
def test_long_sampled_outputs_lean_no_further_than_without_speculation(lab: Lab) -> Evidence:
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    if isinstance(lab.decoder, Taped) and lab.run.profile is not Profile.CERTIFY:
        raise NotOffered("decided exactly by LAW-2 to LAW-4; statistics are for decoders without a tape")
    plain, slack, against = unspeculative(lab)
    chance, judge, tokens = lab.random("LAW-7"), lab.judge, lab.effort.tokens
    draft = drafter_of(judge, lab.run.setup.draft, lab.claims.draft_format)
    base = Request(prompt=(0,), max_tokens=tokens, sampling=Sampling(temperature=1.0))
    if lab.honours("ignore_eos"):
        base = replace(base, ignore_eos=True)
    requests = [replace(base, prompt=prompt(lab, chance, 4 + i % 13)) for i in range(lab.effort.long)]
    rows = min(BATCH, *(decoder.claims.limits.max_batch for decoder in (lab.decoder, plain)))
    told = {"alpha": lab.budget.take("LAW-7"), "wanted": lab.effort.wanted, "rows": rows, "tokens": tokens}
    on, off = (Arm(judge, draft, nats, lab.run.seed + i) for i, nats in enumerate((lab.envelope(), slack)))
    cases = listen(Pairs(on, off, told), (lab.decoder, plain), requests, rows, chance)
    guards = [traced(lab, "acceptances", on.accepted), traced(lab, "rejections", on.rejected)] if lab.drafts else []
    means = {case["label"]: round(sum(case["off"]) / len(case["off"]), 4) for case in cases if "off" in case}
    return Evidence("leans", cases, guards, {"against": against, "of that arm, on the average": means})
