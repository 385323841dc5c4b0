"""SMP: each row is sampled by its own parameters, at every place of a span, whatever stands beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specqual.conformance.chapter import clause
from specqual.conformance.draws import case_of as drawn
from specqual.conformance.drive import Answer, DecoderError, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import laws, prompt, usable
from specqual.conformance.greedy import Serve, case_of
from specqual.conformance.hazards import batch, beside, parameters, penalised, speculation, traced, unlike_lengths
from specqual.conformance.lab import Lab, scripted, taped
from specqual.conformance.processors import PENALTIES, decided_inside, histories
from specqual.conformance.scripts import allowed, continuation, greedy_patterns, sampled
from specqual.conformance.test_ge import alone, hazards, judged, violated
from specqual.conformance.test_law import rule_of
from specqual.conformance.test_rng import compared
from specqual.conformance.unusual import UNUSUAL, unusual
from specqual.contract import (
    InvalidRequest,
    Proposal,
    Request,
    Rule,
    Sampling,
    Script,
    ScriptContext,
    Scripted,
    SeedContract,
    Unsupported,
)
from specqual.reference.rng import Counter
from specqual.reference.tape import Recorded

MIXTURE, UNEQUAL = "greedy rows served beside sampled ones", "rounds of unlike draft lengths"
FIRM = 1e4  # bias of a logit that nothing outweighs
MIXED: tuple[dict[str, Any], ...] = (  # a parameter for each row
    {"temperature": 1.0},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.7},
    {"temperature": 0.9, "min_p": 0.3},
)


def row(lab: Lab, clause_id: str, place: int, tokens: int, sampling: Sampling) -> Request:
    """A request of its own prompt and seed; it runs on past the end of sequence where that can be asked for."""
    chance = lab.random(f"{clause_id}/{place}")
    seed = chance.randrange(2**32) if lab.honours("seed") else 0
    ids = prompt(lab, chance, 3 + 2 * place)
    return Request(prompt=ids, max_tokens=tokens, sampling=sampling, seed=seed, ignore_eos=lab.honours("ignore_eos"))


def sampled_rows(lab: Lab, clause_id: str) -> list[Request]:
    """Rows of unlike parameters and budgets, as far as they are honoured; the first one has a penalty."""
    lab.require_fields("temperature")
    first, *others = laws(lab, MIXED)
    penalty = next((name for name in PENALTIES if lab.honours(name) and lab.has("penalties")), None)
    first = first if penalty is None else replace(first, **{penalty: 1.5})
    return [row(lab, clause_id, 2 + i, lab.effort.span - i, s) for i, s in enumerate((first, *others))]


def greedy_rows(lab: Lab, clause_id: str) -> list[Request]:
    """Two rows, the second with a filter that means nothing at temperature zero."""
    second = Sampling(top_k=3) if lab.honours("top_k") else Sampling()
    return [row(lab, clause_id, i, lab.effort.span - 2 * i, s) for i, s in enumerate((Sampling(), second))]


def orders(greedy: Sequence[Request], warm: Sequence[Request]) -> dict[str, list[Request]]:
    """One batch in several orders: which kind of row stands first must not matter."""
    return {"greedy rows first": [*greedy, *warm], "sampled rows first": [*warm, *greedy]}


def served(lab: Lab, mixed: Sequence[Request]) -> list[Answer]:
    """The answers to rows of a mixed batch; without such batches, kind by kind."""
    if lab.has("mixed-rows"):
        return list(batch(lab, mixed))
    kinds = ([row for row in mixed if row.sampling.greedy is kind] for kind in (True, False))
    return [answer for rows in kinds for answer in batch(lab, rows)]


@clause("SMP-1")
def test_a_greedy_row_stays_greedy_among_sampled_ones(lab: Lab) -> Evidence:
    greedy, warm, envelope = greedy_rows(lab, "SMP-1"), sampled_rows(lab, "SMP-1"), lab.envelope()
    single, cases = {request: lab.answer(request).output for request in greedy}, list[Case]()
    together = {name: served(lab, rows) for name, rows in orders(greedy, warm).items()}
    for name, answers in together.items():
        for answer in answers:
            if answer.request in single:
                label = f"greedy row of a mixed batch of {len(answers)}, {name}"
                plain = single[answer.request]
                cases.append(case_of(lab, answer, label=label, envelope=envelope, plain=plain, against="the row alone"))
    return Evidence("greedy", cases, [beside(lab, together.values(), MIXTURE, mixed=True)])


def unequal(lab: Lab, rows: Sequence[Request]) -> Script:
    """Each row is drafted as many tokens as its place says, its own greedy continuation."""
    known = {request.prompt: (continuation(lab, request), place) for place, request in enumerate(rows)}

    def draft(context: ScriptContext) -> Proposal:
        first = max((ids for ids in known if context.tokens[: len(ids)] == ids), key=len)
        tokens, place = known[first]
        start, count = len(context.tokens) - len(first), (place + context.round_index) % (context.max_draft + 1)
        return allowed(lab, context, tokens[start : start + count], tokens[start:])

    return draft


@clause("SMP-2")
def test_a_sampled_row_is_the_same_alone_and_among_rows_of_other_parameters(lab: Lab) -> Evidence:
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    if lab.claims.seed is SeedContract.NONE:
        raise NotOffered("the decoder claims no seed contract")
    lab.require_fields("seed")
    greedy, warm, cases = greedy_rows(lab, "SMP-2"), sampled_rows(lab, "SMP-2"), list[Case]()
    batches = list[list[Answer]]()

    def compare(how: str, ask: Serve) -> None:
        single = {request: ask(request) for request in warm}
        for name, rows in orders(greedy, warm).items():
            batches.append(served(lab, rows))
            for answer in batches[-1]:
                if answer.request in single:
                    what = f"{answer.request.sampling}, {name}, {how}: alone against in the batch"
                    expected, actual, _ = compared(lab, single[answer.request], answer)
                    cases.append({"what": what, "expected": expected, "actual": actual})

    compare("configured drafter", lab.answer)
    if lab.longest and isinstance(lab.decoder, Scripted):
        with scripted(lab.decoder, unequal(lab, [*greedy, *warm])):
            compare("drafts of unequal length", alone(lab.decoder))
    guards = [beside(lab, batches, MIXTURE, mixed=True)]
    if lab.longest > 1 and isinstance(lab.decoder, Scripted):
        guards.append(traced(lab, UNEQUAL, sum(unlike_lengths(lab, answers) for answers in batches)))
    return Evidence("values", cases, guards)


def on_a_tape(lab: Lab, rows: Sequence[Request], shapes: Sequence[str], clause_id: str) -> list[Answer]:
    """Serve rows together under scripted drafts that have a law, each row with a draft length of its own."""
    chance, k = lab.random(f"{clause_id}/drafts"), lab.longest if lab.has("unequal-drafts") else 1
    shapes = shapes if lab.has("wrong-drafts") else ("equal",)
    drafters = {
        request.prompt: (
            sampled(lambda ids, r=request: lab.judge.law(r, ids[len(r.prompt) :]), shapes[place % len(shapes)], chance),
            place,
        )
        for place, request in enumerate(rows)
    }

    def script(context: ScriptContext) -> Proposal:
        first = max((ids for ids in drafters if context.tokens[: len(ids)] == ids), key=len)
        drafter, place = drafters[first]
        most = 1 + (place + context.round_index) % max(1, k)
        return drafter(replace(context, max_draft=min(most, context.max_draft)))

    with scripted(lab.decoder, script):
        return served(lab, rows)


def draws(
    lab: Lab, rule: Rule, batches: Mapping[str, tuple[Sequence[Request], Sequence[str]]], clause_id: str
) -> tuple[Evidence, list[list[Answer]]]:
    """Every sampled decision of these batches beside its number; greedy rows take part and are not judged here."""
    cases, together = list[Case](), list[list[Answer]]()
    for name, (rows, shapes) in batches.items():
        recorded = Recorded(Counter())
        with taped(lab.decoder, recorded):
            together.append(on_a_tape(lab, rows, shapes, f"{clause_id}/{name}"))
        numbers = dict(recorded.asked)
        for answer in together[-1]:
            if not answer.request.sampling.greedy:
                label = f"{rule}, {name}, {answer.request.sampling}"
                cases.append(drawn(lab, answer, numbers.get, label=label, scripted=True))
    answers = [answer for one in together for answer in one]
    guards = [Guard("numbers drawn", sum(len(case["decisions"]) for case in cases)), *speculation(lab, answers)]
    return Evidence("draws", cases, guards), together


@clause("SMP-3")
def test_every_row_of_a_mixed_batch_is_drawn_by_its_own_parameters(lab: Lab) -> Evidence:
    rule = rule_of(lab)
    batches = {
        name: (batch, ("equal", "narrow", "far"))
        for name, batch in orders(greedy_rows(lab, "SMP-3"), sampled_rows(lab, "SMP-3")).items()
    }
    found, together = draws(lab, rule, batches, "SMP-3")
    guards = [*found.guards, *parameters(lab, [answer for answers in together for answer in answers])]
    guards.append(beside(lab, together, MIXTURE, mixed=True))
    if lab.longest > 1:
        guards.append(Guard(UNEQUAL, sum(unlike_lengths(lab, answers) for answers in together)))
    return replace(found, guards=guards)


@clause("SMP-4")
def test_penalties_and_bias_hold_at_every_place_of_a_span(lab: Lab) -> Evidence:
    k, envelope, cases = lab.longest, lab.envelope(), list[Case]()
    if not k:
        raise NotOffered("speculation is off")
    inside, accepted = 0, set[int]()
    tokens = {"wrong at j": (k + 1) * (k + 2) // 2 + 1, "perfect": 2 * k + 3, "right-wrong-right": lab.effort.span}
    patterns = greedy_patterns(k)
    for place, (name, sampling) in enumerate(histories(lab, lab.random("SMP-4")).items()):
        longest = row(lab, "SMP-4", place, max(tokens.values()), sampling)
        for pattern, budget in tokens.items():
            request = replace(longest, max_tokens=budget)
            with scripted(lab.decoder, patterns[pattern].script(lab, longest)):
                answer = serve(lab.decoder, [request])[0]
            label = f"{name}, scripted drafts: {pattern}"
            cases.append(case_of(lab, answer, label=label, envelope=envelope))
            inside += decided_inside(lab, answer)
            accepted.update(r.accepted for r in answer.rounds or () if r.proposals)
        if violated(cases):
            break
    guards = [traced(lab, "tokens that their own span decides", inside)]
    guards.append(traced(lab, "accepted lengths", len(accepted), k + 1))
    return Evidence("greedy", cases, [*hazards(lab, cases), *guards])


def knowing(lab: Lab, first: int, known: Sequence[int], changes: Mapping[int, int]) -> Script:
    """A drafter that knows the output and drafts other tokens at these places of it."""

    def draft(context: ScriptContext) -> Proposal:
        start = len(context.tokens) - first
        places = range(start, min(start + context.max_draft, len(known)))
        return allowed(lab, context, [changes.get(place, known[place]) for place in places], known[start:])

    return draft


@clause("SMP-5")
def test_min_tokens_ends_at_every_place_of_a_span(lab: Lab) -> Evidence:
    """A bias makes the end of sequence the best token everywhere, so that it comes as soon as it may."""
    lab.require_fields("min_tokens", "logit_bias")
    k, envelope, cases, inside = lab.longest, lab.envelope(), list[Case](), 0
    if not lab.claims.limits.eos_ids:
        raise NotOffered("the target has no end of sequence")
    eos, other = lab.claims.limits.eos_ids[0], usable(lab)[0]
    for least in range(k + 4):
        request = row(lab, "SMP-5", 1, k + 6, Sampling(logit_bias=((eos, FIRM),)))
        request = replace(request, min_tokens=least, ignore_eos=False)
        known = continuation(lab, request)
        drafts = {"all drafts right": {}, "end drafted too early": {least - 1: eos}, "end not drafted": {least: other}}
        for name, changes in drafts.items():
            with scripted(lab.decoder, knowing(lab, len(request.prompt), known, changes)):
                answer = serve(lab.decoder, [request])[0]
            cases.append(case_of(lab, answer, label=f"min_tokens {least}, {name}", envelope=envelope))
            ends = [r.start + len(r.committed) + 1 - len(request.prompt) for r in answer.rounds or ()]
            inside += least not in (0, *ends)
        if violated(cases):
            break
    guards = [traced(lab, "ends of min_tokens inside a span", inside)] if lab.longest else []
    return Evidence("greedy", cases, guards)


@clause("SMP-6")
def test_penalties_hold_at_every_place_of_a_sampled_span(lab: Lab) -> Evidence:
    rule, batches = rule_of(lab), {}
    for place, (name, sampling) in enumerate(histories(lab, lab.random("SMP-6"), temperature=2.0).items()):
        rows = [row(lab, f"SMP-6/{place}", i, lab.effort.span, sampling) for i in range(3)]
        batches[name] = rows, ("equal", "far", "equal")
    found, together = draws(lab, rule, batches, "SMP-6")
    return replace(found, guards=[*found.guards, penalised(answer for answers in together for answer in answers)])


@clause("SMP-7")
def test_greedy_output_under_penalties_is_the_same_with_speculation_off(lab: Lab) -> Evidence:
    plain, cases, answers = alone(lab.plain), list[Case](), list[Answer]()
    for place, (name, sampling) in enumerate(histories(lab, lab.random("SMP-7")).items()):
        label = f"{name}, configured drafter, against the same engine without it"
        request = row(lab, "SMP-7", place, 2 * lab.effort.span, sampling)
        cases = [*judged(lab, lab.decoder, lab.answer, [request], label, plain), *cases]
        if violated(cases):
            break
        answers.append(lab.answer(request))
    return Evidence("greedy", cases, [penalised(answers), *(hazards(lab, cases) if lab.drafts else ())])


@clause("SMP-8")
def test_a_parameter_is_honoured_or_refused_by_name(lab: Lab) -> Evidence:
    base, cases = Request(prompt=prompt(lab, lab.random("SMP-8"), 3), max_tokens=3), list[Case]()
    for name, request in unusual(base):
        claimed, actual = lab.honours(name), "served"
        try:
            guarded("submit", lambda r=request: lab.decoder.submit(r))
        except InvalidRequest as error:
            actual = f"InvalidRequest {error.field.split('[')[0]}"
        except (DecoderError, Unsupported, NotOffered) as error:
            actual = type(error.__cause__ or error).__name__
        what = f"{name} = {UNUSUAL[name]!r}, {'claimed' if claimed else 'not claimed'}"
        cases.append({"what": what, "expected": "served" if claimed else f"InvalidRequest {name}", "actual": actual})
    lab.renew()  # what was let in is not waited for
    return Evidence("values", cases)
