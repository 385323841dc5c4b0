"""LAW: sampled output has the target's law, decided exactly wherever the decoder lets a tape in."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import expm1
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import numpy as np
from hypothesis import strategies as st

from specqual import fixtures, reference
from specqual.conformance.chapter import clause
from specqual.conformance.draws import PARAMETERS, case_of, counted, slack_of
from specqual.conformance.drive import DecoderError, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import prompt, smallest
from specqual.conformance.judge import Judge
from specqual.conformance.lab import SHARES, Lab, scripted, taped
from specqual.conformance.scripts import SHAPES, sampled
from specqual.conformance.tapes import Cells, Edges
from specqual.conformance.verdicts import Profile
from specqual.contract import (
    Decoder,
    Key,
    Method,
    Proposal,
    Purpose,
    Request,
    Rule,
    Sampling,
    ScriptContext,
    Taped,
    Tokens,
    Traced,
)
from specqual.reference.law import law, residual, stream_law, target_law
from specqual.reference.rng import Counter
from specqual.reference.tape import Recorded

TINY_DRAFTS = {
    Method.DFLASH: "nano/dense-dflash",
    Method.DFLASH2: "nano/dense-dflash2",
    Method.DFLASH_SELECTOR: "nano/dense-selector",
    Method.DFLASH_CONV: "nano/dense-conv",
    Method.MARKOV: "nano/dense-markov",
    Method.ASSISTED: "nano/llama",
}
PATIENCE = 120.0  # seconds for one path
FEW = 3  # drafts of one scripted round: enough for a rejection in the middle, few enough to enumerate


def sampled_requests(lab: Lab, clause_id: str, tokens: int) -> list[Request]:
    """One request for each set of sampling parameters that the decoder honours, each with a seed of its own."""
    chance, found = lab.random(clause_id), []
    for parameters in PARAMETERS:
        if lab.honours(*parameters):
            seed = chance.randrange(2**32)
            ids = prompt(lab, chance, 4 + len(found))
            found.append(Request(prompt=ids, max_tokens=tokens, sampling=Sampling(**parameters), seed=seed))
    return found


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
        wrong(found)  # once more, to stand last
        return Evidence("values", cases[-1:])
    return Evidence("values", cases)


@clause("LAW-2")
def test_every_sampled_decision_follows_from_its_number(lab: Lab) -> Evidence:
    rule, cases = rule_of(lab), []
    for request in sampled_requests(lab, "LAW-2", lab.effort.tokens // 2):
        recorded = Recorded(Counter())
        with taped(lab.decoder, recorded):
            answer = serve(lab.decoder, [request])[0]
        numbers = dict(recorded.asked)
        cases.append(case_of(lab, answer, numbers.get, label=f"{rule}, {request.sampling}"))
    guards = [Guard("numbers drawn", sum(len(case["decisions"]) for case in cases))]
    if rule in (Rule.RATIO, Rule.ONE_HOT):
        guards = [Guard("acceptances", counted(cases, "accept", True)), Guard("rejections", counted(cases, "residual"))]
    return Evidence("draws", cases, guards)


@clause("LAW-3")
def test_decisions_at_the_edge_of_scripted_drafts_are_right(lab: Lab) -> Evidence:
    rule, decoder, cases = rule_of(lab), lab.decoder, []
    chance = lab.random("LAW-3")
    requests = sampled_requests(lab, "LAW-3", lab.effort.span)
    for number, shape in enumerate(SHAPES):
        request = requests[number % len(requests)]
        edges = Edges(rule, chance, 4 * slack_of(lab))
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
    guards = [Guard("bonus tokens", counted(cases, "bonus"))]
    if rule in (Rule.RATIO, Rule.ONE_HOT):
        guards += [
            Guard("acceptances", counted(cases, "accept", True)),
            Guard("rejections", counted(cases, "residual")),
        ]
    return Evidence("draws", cases, guards)


@clause("LAW-4")
def test_sampled_output_equals_the_references_on_the_same_tape(lab: Lab) -> Evidence:
    rule_of(lab)
    twin = guarded("the reference", lambda: reference.make(replace(lab.run.setup, dtype="float64", options={})), 600.0)
    if twin.claims.method != lab.claims.method or twin.claims.limits.max_draft != lab.longest:
        raise NotOffered("the reference decoder has no drafter like this one, so its drafts would differ")
    cases: list[Case] = []
    for request in sampled_requests(lab, "LAW-4", lab.effort.span):
        outputs = []
        for decoder in (twin, lab.decoder):
            with taped(decoder, Counter()):
                outputs.append([list(ids) for ids in serve(decoder, [request])[0].samples])
        cases.append({"what": f"seed {request.seed}, {request.sampling}", "expected": outputs[0], "actual": outputs[1]})
    return Evidence("values", cases)


# -- LAW-5: a target of four tokens whose laws, like every law that a rule derives from them, have few denominators ----

LAWS = {"": "1/2 1/4 1/4 0", "0": "1/4 1/4 1/2 0", "1": "1/2 0 1/4 1/4", "2": "1/4 1/2 1/4 0", "3": "1 0 0 0"}
DRAFTERS = {
    "far": {"": "1/4 1/2 1/4 0", "0": "1/2 1/4 0 1/4", "1": "1/4 1/4 1/2 0", "2": "1/2 1/4 1/4 0"},
    "narrow": {"": "0 1/2 1/2 0", "0": "0 0 1/2 1/2", "1": "0 1/2 1/2 0"},
    "equal": LAWS,
}


def table_law(table: dict[str, str], last: int) -> list[Fraction]:
    return [Fraction(number) for number in table.get(str(last), table[""]).split()]


def cuts_of(q: dict[str, str]) -> dict[Purpose, list[Fraction]]:
    """Edges of every decision that may occur: ratios for acceptance, cumulative sums for everything drawn."""
    inside = lambda values: [v for v in values if 0 < v < 1]  # noqa: E731
    ratios: list[Fraction] = []
    sums: list[Fraction] = []
    for last in range(4):
        p, draft = np.array(table_law(LAWS, last), object), np.array(table_law(q, last), object)
        ratios += [a / b for a, b in zip(p, draft, strict=True) if b]
        points = [np.array([Fraction(token == i) for i in range(4)], object) for token in range(4)]
        for drawn in (p, residual(p, draft), *(residual(p, point) for point in points)):
            sums += list(np.cumsum(drawn))
        ratios += list(p)  # the one-hot rule
    return {Purpose.ACCEPT: inside(ratios), Purpose.RESIDUAL: inside(sums), Purpose.BONUS: inside(sums)}


def path_law(
    decoder: Decoder, request: Request, q: dict[str, str], tokens: int, drafts: int
) -> dict[tuple[int, ...], Fraction]:
    """The exact law of the first tokens, the prompt's certain successor included, over every path of the real code."""
    cuts, start = cuts_of(q), len(request.prompt)

    def edges(key: Key) -> list[Fraction]:
        return [] if key.position == start else cuts.get(key.purpose, [])  # the token behind the prompt is certain

    cells, total = Cells(edges), dict[tuple[int, ...], Fraction]()

    def script(context: ScriptContext) -> Proposal:
        if context.round_index > 1:  # one drafted round decides; behind a rejection the next round drafts nothing
            return Proposal.certain(())
        return cells.drafts(lambda ids: table_law(q, ids[-1]), context.tokens, min(drafts, context.max_draft))

    with taped(decoder, cells), scripted(decoder, script):
        while True:
            output: list[int] = []
            request_id, stop, ended = guarded("submit", lambda: decoder.submit(request)), monotonic() + PATIENCE, False
            while len(output) < tokens and not ended:
                if monotonic() > stop:
                    raise DecoderError(f"{tokens} tokens did not come within {PATIENCE:g} seconds")
                for event in (e for e in guarded("step", decoder.step) if e.request_id == request_id):
                    if isinstance(event, Tokens):
                        output += event.ids
                    else:
                        ended = True
            if not ended:
                guarded("cancel", lambda i=request_id: decoder.cancel(i))
            key = tuple(output[:tokens])
            total[key] = total.get(key, Fraction(0)) + cells.weight
            if not cells.advance():
                return total


@clause("LAW-5")
def test_the_whole_transaction_has_the_targets_law_exactly(lab: Lab) -> Evidence:
    rule, cases = rule_of(lab), []
    with TemporaryDirectory() as folder:
        config = {"model_type": "specqual_table", "vocab_size": 4, "context": 1}
        laws = {suffix: numbers.split() for suffix, numbers in LAWS.items()}
        (Path(folder) / "config.json").write_text(json.dumps(config | {"laws": laws}))
        decoder = lab.tiny(target=Path(folder), draft=None, draft_length=2, dtype=None)
        lab.require("Scripted", "Taped", decoder=decoder)
        request = Request(prompt=(3,), max_tokens=8, sampling=Sampling(temperature=1.0))
        right = target_law(lambda prefix: np.array(table_law(LAWS, prefix[-1] if prefix else 3), object), 3)
        for (name, q), drafts in product(DRAFTERS.items(), (2, 1)):  # a single draft brings the bonus into the three
            joint = path_law(decoder, request, q, 3, drafts)
            expected, actual = (
                [[list(tokens), str(mass)] for tokens, mass in sorted(found.items())] for found in (right, joint)
            )
            what = f"{rule}, q {name}, {drafts} drafts: joint law of three tokens"
            cases.append({"what": what, "expected": expected, "actual": actual})
    return Evidence("values", cases)


@clause("LAW-6")
def test_the_joint_law_of_sampled_tokens_is_the_targets(lab: Lab) -> Evidence:
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    if isinstance(lab.decoder, Taped) and lab.run.profile is not Profile.CERTIFY:
        raise NotOffered("decided exactly by LAW-2 to LAW-5; statistics are for decoders without a tape")
    decoder, judge, name = lab.decoder, lab.judge, lab.run.setup.target.name
    if lab.claims.limits.vocab_size > 256:
        name = "nano/dense"
        draft = TINY_DRAFTS.get(lab.claims.method) if lab.run.setup.draft is not None else None
        decoder = lab.tiny(target=fixtures.path(name), draft=fixtures.path(draft) if draft is not None else None)
        judge = Judge.of(fixtures.path(name))
    slack = min(1.0, 1.5 * expm1(min(1.0, lab.envelope(decoder))))  # half of e^x - 1 for each of three tokens
    chance, cases, accepted, rejected = lab.random("LAW-6"), list[Case](), 0, 0
    vocab = decoder.claims.limits.vocab_size
    ids = tuple(chance.choices(range(1, vocab - 1), k=6))
    for parameters in ({"temperature": 1.0, "top_k": 2}, {"temperature": 1.0}):
        if not set(parameters) <= decoder.claims.sampling:
            continue
        base = Request(prompt=ids, max_tokens=4, sampling=Sampling(**parameters))
        cells, p = joint_cells(judge, base)
        counts = [0] * (len(cells) + 1)
        for number in range(lab.effort.samples):
            budget = 3 + number % 2  # with 3, behind an accepted draft, the third token is the bonus; with 4 a draft
            request = replace(base, seed=chance.randrange(2**63), max_tokens=budget)
            answer = serve(decoder, [request])[0]
            counts[cells.get(answer.output[:3], len(cells))] += 1
            accepted += sum(r.accepted > 0 for r in answer.rounds or ())
            rejected += sum(r.accepted < len(r.proposals) for r in answer.rounds or ())
        label = f"first three tokens behind {list(ids)} on {name}, {base.sampling}"
        case = {"label": label, "p": p, "counts": counts, "alpha": SHARES["LAW-6"], "slack": slack}
        cases.append(case | {"wanted": lab.effort.wanted})
    seen = isinstance(decoder, Traced) and decoder.claims.limits.max_draft and lab.drafts
    guards = [Guard("acceptances", accepted), Guard("rejections", rejected)] if seen else []
    return Evidence("counts", cases, guards)


def joint_cells(judge: Judge, request: Request) -> tuple[dict[tuple[int, ...], int], list[float]]:
    """Likely first three tokens and their exact probabilities; the last cell is everything else."""
    likely: dict[tuple[int, ...], float] = {(): 1.0}
    for width in (8, 4, 4):
        longer: dict[tuple[int, ...], float] = {}
        for prefix, mass in likely.items():
            p = judge.law(request, prefix)
            for token in np.argsort(-p, kind="stable")[:width].tolist():
                if p[token] and token not in judge.target.eos_ids:
                    longer[(*prefix, token)] = mass * float(p[token])
        likely = longer
    kept = sorted(likely, key=lambda tokens: (-likely[tokens], tokens))[:15]
    p = [likely[tokens] for tokens in kept]
    return {tokens: place for place, tokens in enumerate(kept)}, [*p, max(0.0, 1.0 - sum(p))]
