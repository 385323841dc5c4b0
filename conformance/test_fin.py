"""FIN: output ends where it must, with the right reason and usage, wherever the end falls in a span."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from specqual.conformance.chapter import clause
from specqual.conformance.drive import Answer, DecoderError, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import greedy_requests
from specqual.conformance.hazards import last_rounds, traced
from specqual.conformance.lab import Lab, scripted
from specqual.conformance.scripts import allowed, continuation, mask_id
from specqual.conformance.ties import tie_of
from specqual.contract import (
    Finished,
    FinishReason,
    Proposal,
    Refused,
    Request,
    Round,
    Script,
    ScriptContext,
    Scripted,
    Tokens,
)
from specqual.reference.text import Text

Ending = Callable[[Sequence[int]], tuple[list[int], str]]
"""Where a greedy path ends, and why."""
FIRM = 1e4  # bias of a logit that nothing outweighs


def base_of(lab: Lab, clause_id: str, tokens: int) -> Request:
    """A greedy request whose output does not end by itself, where that can be asked for."""
    request = greedy_requests(lab, clause_id, 1, tokens)[0]
    request = replace(request, prompt=request.prompt[:9])
    return replace(request, ignore_eos=True) if lab.honours("ignore_eos") else request


def ended(lab: Lab, known: Sequence[int], stops: Sequence[int], longest: int) -> tuple[list[int], str]:
    """Where the known greedy output ends under these stop ids and this budget, and why."""
    eos = () if lab.honours("ignore_eos") else lab.claims.limits.eos_ids
    output = list(known[:longest])
    for place, token in enumerate(output):
        if token in stops or token in eos:
            return output[: place + 1], str(FinishReason.STOP)
    return output, str(FinishReason.LENGTH)


def stopping(lab: Lab, stops: Sequence[int], longest: int) -> Ending:
    return lambda path: ended(lab, path, stops, longest)


def compared(lab: Lab, what: str, answer: Answer, known: Sequence[int], ends: Ending) -> list[Case]:
    """Tokens, reason and usage of an answer against what they must be: the known output, cut where it ends; or, where
    it leaves that at a tie, its own path, cut by the same rule."""
    usage, (output, reason) = answer.usage, ends(known)
    assert usage is not None
    tie = tie_of(lab, answer.request, output, answer.output)
    cases: list[Case] = [{"what": f"{what}: output", "expected": output, "actual": list(answer.output), **tie}]
    if tie:
        output, reason = ends(answer.output)
        whole = reason == FinishReason.STOP or len(output) == answer.request.max_tokens
        own, seen = f"{what}: its own path, and whether that is whole", [list(answer.output), whole]
        cases.append({"what": own, "expected": [output, True], "actual": seen})
    return [
        *cases,
        {"what": f"{what}: reasons", "expected": [reason], "actual": [str(r) for r in answer.reasons]},
        {
            "what": f"{what}: usage (prompt, completion)",
            "expected": [len(answer.request.prompt), len(output)],
            "actual": [usage.prompt_tokens, usage.completion_tokens],
        },
    ]


def known_drafts(
    lab: Lab, first: int, known: Sequence[int], tail: str, stop: int | None = None, most: int | None = None
) -> Script:
    """A drafter that knows the output, all of it or all but the last draft of a round, which may be the stop id.

    It makes at most `most` drafts.
    """

    def draft(context: ScriptContext) -> Proposal:
        start = len(context.tokens) - first
        count = context.max_draft if most is None else min(most, context.max_draft)
        tokens = list(known[start : start + count])
        if tail == "last draft wrong" and tokens:
            tokens[-1] = next(token for token in (0, 1) if token != tokens[-1])
        if tail == "last draft the stop id" and tokens and stop is not None:
            tokens[-1] = stop
        return allowed(lab, context, tokens, known[start:])

    return draft


@clause("FIN-1", sees=("a trace",))
def test_output_ends_with_the_first_stop_id(lab: Lab) -> Evidence:
    lab.require_fields("stop_ids")
    base = base_of(lab, "FIN-1", lab.effort.span)
    known, cases, answers = continuation(lab, base), [], list[Answer]()
    stops = [(token,) for token in dict.fromkeys(known[: lab.effort.span])] if lab.has("stops") else []
    for ids in stops:
        last = known.index(ids[0]) + 1  # where the budget ends with it, it ends the output all the same
        for budget in (base.max_tokens, last):
            answers.append(serve(lab.decoder, [replace(base, stop_ids=ids, max_tokens=budget)])[0])
            what = f"stop id {ids[0]} in {budget} tokens"
            cases += compared(lab, what, answers[-1], known, stopping(lab, ids, budget))
    if stops:
        two = tuple(sorted(set(known[2:4])))
        answers.append(serve(lab.decoder, [replace(base, stop_ids=two)])[0])
        cases += compared(lab, f"stop ids {list(two)}", answers[-1], known, stopping(lab, two, base.max_tokens))
    if lab.honours("logit_bias", "ignore_eos") and lab.claims.limits.eos_ids:
        cases += end_of_sequence(lab, replace(base, ignore_eos=False))
    return Evidence("values", cases, stopped(lab, answers))


def stopped(lab: Lab, answers: Sequence[Answer]) -> list[Guard]:
    """Outputs that ended at a stop, and how many of them in a round with drafts."""
    ends = sum(FinishReason.STOP in answer.reasons for answer in answers)
    inside = sum(bool(r.proposals) for r in last_rounds(answers))
    guards = [Guard("outputs ended by a stop", ends)]
    return [*guards, traced(lab, "stops in a round with drafts", inside)] if lab.drafts else guards


def end_of_sequence(lab: Lab, base: Request) -> list[Case]:
    """A bias that makes the end of sequence the best token somewhere: it must end the output there."""
    eos = lab.claims.limits.eos_ids[0]
    known = serve(lab.decoder, [replace(base, ignore_eos=True)])[0].output
    rows = lab.judge.rows(base, known)
    gaps = [float(row.max() - row[eos]) for row in rows]
    place = min(range(len(gaps)), key=lambda i: (gaps[i], i))
    earlier = min(gaps[:place], default=gaps[place] + 2.0)
    rounding = 2 * lab.envelope()
    if gaps[place] <= 0 or earlier - gaps[place] <= rounding:
        return []  # the best token already, or rounding decides where it comes first
    biased = replace(base, sampling=replace(base.sampling, logit_bias=((eos, (gaps[place] + earlier) / 2),)))
    answer = serve(lab.decoder, [biased])[0]
    expected = [*known[:place], eos]
    return compared(lab, f"end of sequence at token {place}", answer, expected, stopping(lab, (eos,), base.max_tokens))


@clause("FIN-2", sees=("scripted drafts", "a trace"))
def test_a_stop_id_ends_the_output_at_every_place_of_a_span(lab: Lab) -> Evidence:
    lab.require_fields("stop_ids")
    longest = max(1, lab.longest)
    base = base_of(lab, "FIN-2", 2 * longest + 3)
    known, cases, answers = continuation(lab, base), list[Case](), list[Answer]()
    for place in range(min(len(known), longest + 3) if lab.has("stops") else 0):
        token = known[place]
        last = len(ended(lab, known, (token,), base.max_tokens)[0]) - 1
        tails: list[tuple[str, int | None]] = [("all drafts right", None), ("last draft wrong", None)]
        tails += [("last draft the stop id", None), ("all drafts right, up to the token before", max(0, last - 1))]
        for tail, most in tails:
            with scripted(lab.decoder, known_drafts(lab, len(base.prompt), known, tail, token, most)):
                answers.append(serve(lab.decoder, [replace(base, stop_ids=(token,))])[0])
            ends = stopping(lab, (token,), base.max_tokens)
            cases += compared(lab, f"stop id {token} at token {last}, {tail}", answers[-1], known, ends)
    drafted = [r for r in last_rounds(answers) if r.proposals]
    inside = sum(len(r.committed) <= r.accepted for r in drafted)
    bonus = sum(len(r.committed) > r.accepted == len(r.proposals) for r in drafted)
    guards = [traced(lab, "stop on an accepted draft", inside), traced(lab, "stop on the bonus token", bonus)]
    return Evidence("values", cases, guards)


@clause("FIN-3", sees=("scripted drafts", "a trace"))
def test_the_token_budget_is_met_exactly(lab: Lab) -> Evidence:
    k, cases = lab.longest, list[Case]()
    base = base_of(lab, "FIN-3", k + 2)
    known = continuation(lab, base)
    whole = len(known) >= k + 2 or ended(lab, known, (), len(known))[1] == FinishReason.STOP
    cases.append({"what": "greedy output goes on until something ends it", "expected": True, "actual": whole})
    scripts: list[tuple[str, Callable[[], Script] | None]] = [("configured drafter", None)]
    if isinstance(lab.decoder, Scripted):
        scripts.append(("perfect drafts", lambda: known_drafts(lab, len(base.prompt), known, "all drafts right")))
    rounds, budgets = list[Round](), {1, 2, max(1, k), k + 1, k + 2} if lab.has("budgets") else {k + 2}
    for budget in sorted(budgets):
        request = replace(base, max_tokens=budget)
        for label, script in scripts:
            if script is None:
                answer = serve(lab.decoder, [request])[0]
            else:
                with scripted(lab.decoder, script()):
                    answer = serve(lab.decoder, [request])[0]
            cases += compared(lab, f"max_tokens {budget}, {label}", answer, known, stopping(lab, (), budget))
            rounds += [r for r in (answer.rounds or ())[-1:] if r.accepted and budget < k + 2]
        if lab.honours("n"):
            answer = serve(lab.decoder, [replace(request, n=2)])[0]
            cases += samples(answer, f"max_tokens {budget}, both of two samples", stopping(lab, (), budget))
    cut = k > 1 and isinstance(lab.decoder, Scripted)
    hazard = "drafted rounds that the budget kept short"
    return Evidence("values", cases, [traced(lab, hazard, len(rounds))] if cut else ())


def samples(answer: Answer, what: str, ends: Ending) -> list[Case]:
    """Each sample ends where its own path must, and all their tokens are charged for."""
    paths = [ends(path) for path in answer.samples]
    most = answer.request.max_tokens
    whole = [
        list(path) == cut and (len(cut) == most or reason == FinishReason.STOP)
        for path, (cut, reason) in zip(answer.samples, paths, strict=True)
    ]
    usage = answer.usage.completion_tokens if answer.usage is not None else -1
    return [
        {"what": f"{what}: whole, and no longer", "expected": [True] * len(whole), "actual": whole},
        {"what": f"{what}: completion tokens", "expected": sum(map(len, answer.samples)), "actual": usage},
    ]


@clause("FIN-4", sees=())
def test_exactly_one_final_event_and_silence_after_it(lab: Lab) -> Evidence:
    decoder, cases = lab.decoder, list[Case]()
    for place, answer in enumerate(serve(decoder, greedy_requests(lab, "FIN-4", 3, lab.effort.span))):
        seen = [answer.finals, answer.late, sum(len(ids) for ids in answer.samples)]
        usage = answer.usage.completion_tokens if answer.usage is not None else -1
        what = f"request {place}: final events, tokens after the first of them, tokens charged for"
        cases.append({"what": what, "expected": [1, 0, usage], "actual": seen})
    before = len(cases)
    for steps in range(3):
        cases += cancelled(lab, base_of(lab, "FIN-4/cancel", lab.effort.tokens), steps)
    return Evidence("values", cases, [Guard("requests cancelled before their end", len(cases) - before)])


def cancelled(lab: Lab, request: Request, steps: int) -> list[Case]:
    """Cancel after some steps and listen; nothing to say where the request has ended by then."""
    decoder = lab.decoder
    request_id = guarded("submit", lambda: decoder.submit(request))
    tokens, finals = 0, list[Finished | Refused]()
    for step in range(steps + 6):
        if step == steps:
            if finals:
                return []
            try:
                guarded("cancel", lambda: decoder.cancel(request_id))
            except DecoderError as error:
                what = f"cancel after {steps} steps"
                return [{"what": what, "expected": "cancelled", "actual": str(error)}]
        for event in guarded("step", decoder.step):
            if event.request_id != request_id:
                continue
            if isinstance(event, Tokens):
                tokens += len(event.ids) if not finals else 10**6
            else:
                finals.append(event)
    reasons = [str(r) for final in finals if isinstance(final, Finished) for r in final.reasons]
    charged = [final.usage.completion_tokens for final in finals if isinstance(final, Finished)]
    what = f"cancel after {steps} steps: reasons of all final events, tokens charged for"
    return [{"what": what, "expected": [[str(FinishReason.CANCELLED)], [tokens]], "actual": [reasons, charged]}]


@clause("FIN-5", sees=("a trace",))
def test_a_stop_string_ends_the_output_with_the_token_that_completes_it(lab: Lab) -> Evidence:
    lab.require_fields("stop_strings")
    text = lab.text
    if text is None:
        raise NotOffered("there is no tokenizer beside the target")
    base = base_of(lab, "FIN-5", lab.effort.span)
    known, cases, answers = list(continuation(lab, base)), list[Case](), list[Answer]()
    known = known[: base.max_tokens]
    for width in (1, 2, 3):
        for start in range(1, len(known) - width, max(1, len(known) // 4)):
            stop = text.decode(known[start : start + width])
            if not stop or "\ufffd" in stop:
                continue
            answers.append(serve(lab.decoder, [replace(base, stop_strings=(stop,))])[0])
            cases += compared(lab, f"stop string {stop!r}", answers[-1], known, partial(completed, text, stop))
    return Evidence("values", cases, stopped(lab, answers))


def completed(text: Text, stop: str, path: Sequence[int]) -> tuple[list[int], str]:
    """Where a path first holds a stop string, and why it ends there."""
    for place in range(len(path)):
        if stop in text.decode(path[: place + 1]):
            return list(path[: place + 1]), str(FinishReason.STOP)
    return list(path), str(FinishReason.LENGTH)


@clause("FIN-6", sees=("scripted drafts", "a trace"))
def test_a_token_that_means_something_elsewhere_is_a_token(lab: Lab) -> Evidence:
    lab.require_fields("logit_bias")
    base, cases, accepted = base_of(lab, "FIN-6", lab.longest + 2), list[Case](), 0
    limits = lab.claims.limits
    ending = () if lab.honours("ignore_eos") else limits.eos_ids
    for token in sorted({0, mask_id(lab), limits.vocab_size - 1}.difference(ending)):
        request = replace(base, sampling=replace(base.sampling, logit_bias=((token, FIRM),)))
        expected, ends = [token] * request.max_tokens, stopping(lab, (), request.max_tokens)
        if lab.judge.judge(request, expected).argmax != tuple(expected):
            continue  # the target makes it impossible behind itself, which no bias mends
        answer = serve(lab.decoder, [request])[0]
        cases += compared(lab, f"token {token} made the best everywhere, configured drafter", answer, expected, ends)
        if isinstance(lab.decoder, Scripted):
            with scripted(lab.decoder, known_drafts(lab, len(base.prompt), expected, "all drafts right")):
                answer = serve(lab.decoder, [request])[0]
            cases += compared(lab, f"token {token} made the best everywhere, and drafted", answer, expected, ends)
            accepted += sum(r.accepted for r in answer.rounds or ())
            cases += aliases(lab, request, token, ends)
    hazard = traced(lab, "such tokens drafted and accepted", accepted)
    return Evidence("values", cases, [hazard] if lab.longest and isinstance(lab.decoder, Scripted) else ())


def aliases(lab: Lab, request: Request, token: int, ends: Ending) -> list[Case]:
    """Drafts that are no tokens, though they would be this one if looked up from the end of the vocabulary or around
    it; the request, which has no other choice than the token, is sampled where that can be."""
    size, expected, cases = lab.claims.limits.vocab_size, [token] * request.max_tokens, list[Case]()
    for temperature in (0.0, 1.0) if lab.honours("temperature") else (0.0,):
        asked = replace(request, sampling=replace(request.sampling, temperature=temperature))
        for alias in (token - size, token + size):
            script = known_drafts(lab, len(request.prompt), [alias] * len(expected), "all drafts right")
            with scripted(lab.decoder, script):
                answer = serve(lab.decoder, [asked])[0]
            what = f"token {token} the only choice at temperature {temperature:g}, and {alias}, which is none, drafted"
            cases += compared(lab, what, answer, expected, ends)
    return cases
