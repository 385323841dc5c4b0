"""GE: greedy output is the target's own, whatever is drafted."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import isfinite

import numpy as np
from hypothesis import strategies as st

from specqual.conformance.chapter import clause
from specqual.conformance.drive import Answer, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.flips import arm_of, batches, flips
from specqual.conformance.generators import basic_requests, greedy_requests, requests, smallest
from specqual.conformance.greedy import Serve, case_of, minimal, verdict_of
from specqual.conformance.hazards import batch, beside, lengths, traced, undrafted
from specqual.conformance.lab import Lab, scripted
from specqual.conformance.origin import began, explained, served_again
from specqual.conformance.rounding import ENOUGH, NEAR, OTHERS
from specqual.conformance.scripts import Pattern, greedy_patterns
from specqual.conformance.verdicts import Verdict
from specqual.contract import Decoder, Request, Scoring, Scripted


def alone(decoder: Decoder) -> Serve:
    """Ask this decoder for one request at a time."""
    return lambda request: serve(decoder, [request])[0]


def judged(
    lab: Lab, decoder: Decoder, ask: Serve, wanted: list[Request], label: str, plain: Serve | None = None
) -> list[Case]:
    """Ask the decoder for the requests one by one and judge each; the first failing one is shrunk, traced back, put
    first, and ends the list."""
    envelope, cases = lab.envelope(), list[Case]()

    def rebuild(answer: Answer) -> Case:
        against = plain(answer.request).output if plain is not None else None
        return case_of(lab, answer, label=label, envelope=envelope, plain=against, against="speculation off")

    for request in wanted:
        case = rebuild(ask(request))
        if verdict_of(case).verdict is Verdict.VIOLATED:
            small = minimal(lab, ask, case, request, rebuild)
            again = replace(request, prompt=tuple(small["prompt"]), max_tokens=small["max_tokens"])
            return [began(small, served_again(lab, decoder, [again])), case]
        cases.append(case)
    return cases


def violated(cases: list[Case]) -> bool:
    return any(verdict_of(case).verdict is Verdict.VIOLATED for case in cases)


def hazards(lab: Lab, cases: list[Case]) -> list[Guard]:
    """What must have happened for equality to mean anything, as far as the decoder lets that be seen."""
    return [traced(lab, name, sum(case[name] for case in cases)) for name in ("acceptances", "rejections")]


@clause("GE-1", sees=("scores", "a trace"))
def test_greedy_tokens_are_the_targets_with_the_configured_drafter(lab: Lab) -> Evidence:
    wanted = basic_requests(lab)
    cases = judged(lab, lab.decoder, lab.answer, wanted, "configured drafter")
    if violated(cases):
        return Evidence("greedy", cases)
    reached = lengths(lab, [lab.answer(request) for request in wanted])
    return Evidence("greedy", cases, [*reached, *(hazards(lab, cases) if lab.drafts else ())])


@clause("GE-2", sees=("scores", "a trace"))
def test_greedy_output_is_the_same_with_speculation_off(lab: Lab) -> Evidence:
    plain = alone(lab.plain)
    wanted = basic_requests(lab)[: max(2, lab.effort.prompts // 2)]
    label = "configured drafter, against the same engine without it"
    off = judged(lab, lab.plain, plain, wanted, "speculation off")
    if violated(off):
        return Evidence("greedy", off)
    cases = judged(lab, lab.decoder, lab.answer, wanted, label, plain)
    return Evidence("greedy", cases, hazards(lab, cases) if lab.drafts else ())


@clause("GE-3", sees=("scores", "a trace"))
def test_greedy_output_does_not_depend_on_the_draft_length(lab: Lab) -> Evidence:
    longest = lab.longest
    if longest < 2:
        raise NotOffered(f"the decoder drafts at most {longest} tokens, so there is no other draft length")
    cases: list[Case] = []
    for length in range(1, longest + 1):
        decoder = lab.make(draft_length=length)
        if decoder.claims.limits.max_draft != length:
            raise NotOffered("the decoder does not follow the draft length that it is given")
        wanted = greedy_requests(lab, f"GE-3/{length}", 1, lab.effort.span)
        cases = [*judged(lab, decoder, alone(decoder), wanted, f"draft length {length}"), *cases]
        if violated(cases):
            break
    return Evidence("greedy", cases, hazards(lab, cases) if lab.drafts else ())


@clause("GE-4", sees=("scores", "scripted drafts", "a trace"))
def test_greedy_output_does_not_depend_on_the_drafts(lab: Lab) -> Evidence:
    decoder = lab.decoder
    if not lab.longest:
        raise NotOffered("speculation is off")
    cases, answers = list[Case](), list[Answer]()
    request = greedy_requests(lab, "GE-4", 1, lab.effort.span)[0]

    def ask(request: Request) -> Answer:
        answers.append(serve(decoder, [request])[0])
        return answers[-1]

    for name, pattern in greedy_patterns(lab.longest).items():
        with scripted(decoder, pattern.script(lab, request)):
            cases = [*judged(lab, decoder, ask, [request], f"scripted drafts: {name}"), *cases]
        if violated(cases):
            break
    silent = traced(lab, "drafts behind a round without", undrafted(answers))
    return Evidence("greedy", cases, [*hazards(lab, cases), silent])


@clause("GE-5", sees=("scores",))
def test_greedy_output_does_not_depend_on_neighbours(lab: Lab) -> Evidence:
    envelope = lab.envelope()
    wanted = greedy_requests(lab, "GE-5", max(3, lab.effort.prompts), lab.effort.span)
    wanted = [replace(r, max_tokens=max(1, r.max_tokens - 3 * i)) for i, r in enumerate(wanted)]
    together = batch(lab, wanted)
    single = [lab.answer(request) for request in wanted]
    label = f"one of {len(wanted)} concurrent requests"
    cases = [
        case_of(lab, answer, label=label, envelope=envelope, plain=one.output, against="the request alone")
        for answer, one in zip(together, single, strict=True)
    ]
    found = Evidence("greedy", cases, [beside(lab, [together])])
    return explained(lab, found, lambda place: served_again(lab, lab.decoder, wanted, place))


@clause("GE-6", sees=("scores", "scripted drafts", "a trace"))
def test_greedy_output_is_right_for_any_request(lab: Lab) -> Evidence:
    """Hypothesis finds the smallest failing pair of request and draft pattern."""
    decoder, envelope, cases = lab.decoder, lab.envelope(), []
    patterns = st.just(None) if not isinstance(decoder, Scripted) else st.one_of(st.none(), Pattern.drawn(lab))
    strategy = st.tuples(requests(lab, 12, lab.effort.span), patterns)

    def drafting(request: Request, pattern: Pattern | None) -> AbstractContextManager[None]:
        return nullcontext() if pattern is None else scripted(decoder, pattern.script(lab, request))

    def fails(pair: tuple[Request, Pattern | None]) -> bool:
        request, pattern = pair
        with drafting(request, pattern):
            answer = serve(decoder, [request])[0]
        label = "configured drafter" if pattern is None else f"scripted drafts: {pattern}"
        cases.append(case_of(lab, answer, label=label, envelope=envelope))
        return verdict_of(cases[-1]).verdict is Verdict.VIOLATED

    found = smallest(strategy, fails, lab.effort.examples, lab.random("GE-6"))
    if found is None:
        return Evidence("greedy", cases, hazards(lab, cases)[1:] if lab.speculative else ())
    drawn = len(cases)
    fails(found)
    cases[-1]["shrunk"] = f"from one of {drawn} that were drawn"
    with drafting(*found):
        case = began(cases[-1], served_again(lab, decoder, [found[0]]))
    return Evidence("greedy", [case], notes={"tried": len(cases)})


@clause("GE-7", sees=("scores",))
def test_the_engines_own_scores_agree_with_the_reference(lab: Lab) -> Evidence:
    """Scores are asked for in a pass of their own, after the fact: observing must not change what is observed."""
    decoder, cases, envelope, moved = lab.decoder, list[Case](), lab.envelope(), list[float]()
    assert isinstance(decoder, Scoring)
    for request in basic_requests(lab):
        output = lab.answer(request).output
        scored = guarded("score", lambda r=request, o=output: decoder.score(r.prompt, o))
        judged = lab.judge.judge(request, output)
        for name in ("logprob", "best", "runner_up"):
            count = len(getattr(scored, name))
            if count != len(judged.best):
                what = f"{name}: numbers for the tokens of an output behind a prompt of {len(request.prompt)}"
                return Evidence("values", [{"what": what, "expected": len(judged.best), "actual": count}])
        for name, mine in (("logprob", judged.logprob), ("best", judged.best)):
            what = f"{name} of the output behind a prompt of {len(request.prompt)}"
            actual = [float(value) for value in getattr(scored, name)]
            cases.append({"what": what, "expected": list(mine), "actual": actual, "tolerance": envelope})
        scores, own = (np.array([s.best, s.runner_up]) for s in (judged, scored))
        moved += [float(shift) for shift in np.diff((own - scores)[:, np.ptp(scores, axis=0) <= NEAR], axis=0)[0]]
    spread = lab.rounding().widest
    if len(moved) >= ENOUGH and isfinite(spread):
        # four prompts are too few clusters for a test at the run's error rate, so none is claimed
        measured = lab.rounding().spread
        what = (
            f"root mean square of how far {len(moved)} margins between near ties have moved (no statistical test, paid "
            f"from no error budget: the limit is {spread / measured:.2g} times the {measured:.3g} nats by which the "
            f"reference moves in this dtype, {OTHERS:g} times the upper bound of that, which is paid for)"
        )
        rms = float(np.sqrt(np.square(moved).mean()))
        cases.append({"what": what, "expected": 0.0, "actual": rms, "tolerance": spread})
    return Evidence("values", cases)


@clause("GE-8", sees=("scores", "a trace"))
def test_speculation_flips_no_more_greedy_tokens_than_rounding_does(lab: Lab) -> Evidence:
    if lab.claims.greedy.bitwise:
        raise NotOffered("speculation on equals off bit for bit is claimed, which leaves no flip to explain (GE-2)")
    if not lab.drafts:
        raise NotOffered("no drafter is configured")
    plain, alpha = lab.plain, lab.budget.take("GE-8")
    wanted = greedy_requests(lab, "GE-8", 4 * lab.effort.prompts, lab.effort.span)
    served = {"off": batches(lab, wanted, plain), "on": batches(lab, wanted, lab.decoder)}
    arms = {name: arm_of(lab, name, groups, alpha) for name, groups in served.items()}
    cases = [case for arm in arms.values() for case in arm]
    if not violated(cases):
        for name, groups in served.items():
            for case, answer in zip(arms[name], (a for group in groups for a in group), strict=True):
                case["flips"] = flips(plain, answer)
    together = [beside(lab, served["on"]), beside(lab, served["off"], "requests without speculation beside another")]
    return Evidence("flips", cases, [*hazards(lab, arms["on"]), *together])
