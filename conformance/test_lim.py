"""LIM: at the ends of contexts, budgets, batches and pools nothing breaks, and what cannot be served is refused."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from specqual import fixtures
from specqual.conformance.chapter import clause
from specqual.conformance.drafter import DraftTwin
from specqual.conformance.drive import Answer, NotOffered, serve, serve_any
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import greedy_requests, prompt
from specqual.conformance.greedy import case_of
from specqual.conformance.hazards import at_once, batch, own_drafts, traced
from specqual.conformance.lab import Lab, elsewhere, scripted
from specqual.conformance.mutate import changed
from specqual.conformance.quotas import ROUNDS, WINDOWS, far, held
from specqual.conformance.telemetry import charged
from specqual.conformance.test_drf import drafted
from specqual.conformance.ties import tie_of
from specqual.contract import FinishReason, Proposal, Request, Script, ScriptContext, Scripted

LONG = 256  # tokens of a context that is filled as it is; a longer one is cut
CUT = 192
FAR = 1024  # tokens of a prompt in a full batch
LARGEST = 2**28  # bytes of a checkpoint that is copied for a changed config.json
HELD = 24  # positions of a drafter that knows few
STEPS = ROUNDS + 200  # tokens of a request of so many rounds
BYTE = 2**8  # positions that one byte counts
NEVER = 2  # the best token behind nothing, in the chain table


@contextmanager
def limited(directory: Path, positions: int) -> Iterator[Path]:
    """A copy of a checkpoint that says of fewer positions; NotOffered for one that is too large to copy."""
    if sum(path.stat().st_size for path in directory.iterdir() if path.is_file()) > LARGEST:
        raise NotOffered("the checkpoint is too large to copy for a shorter context")

    def shorten(config: dict[str, Any]) -> None:
        inner = config.get("text_config", config)
        inner["max_position_embeddings"] = positions

    with changed(directory, config=shorten) as copy:
        yield copy


@contextmanager
def short_context(lab: Lab) -> Iterator[Lab]:
    """A laboratory whose context is short enough to be filled."""
    if lab.claims.limits.max_context <= LONG:
        yield lab
        return
    with limited(lab.run.setup.target, CUT) as copy, elsewhere(lab, target=copy) as inner:
        if inner.claims.limits.max_context != CUT:
            raise NotOffered(f"the decoder does not take a context of {CUT} from the checkpoint")
        yield inner


def leaving(lab: Lab, clause_id: str) -> list[tuple[int, Request]]:
    """Greedy requests by the room that their prompt leaves, which is what they ask for."""
    context, base = lab.claims.limits.max_context, greedy_requests(lab, clause_id, 1, 1)[0]
    rooms = sorted({1, 2, max(1, lab.longest), lab.longest + 1, lab.longest + 2})
    ids = prompt(lab, lab.random(clause_id), context)
    return [(room, replace(base, prompt=ids[: context - room], max_tokens=room)) for room in rooms]


def knowing(first: int, known: tuple[int, ...]) -> Script:
    """A drafter that knows the output behind a prompt of so many tokens, and drafts as much as it may."""

    def draft(context: ScriptContext) -> Proposal:
        start = len(context.tokens) - first
        return Proposal.certain(known[start : start + context.max_draft])

    return draft


def judged(lab: Lab, label: str, answer: Answer) -> Case:
    return case_of(lab, answer, label=label, envelope=lab.envelope())


@clause("LIM-1")
def test_output_is_right_to_the_very_end_of_the_context(lab: Lab) -> Evidence:
    cases, answers, near = list[Case](), list[Answer](), 0
    with short_context(lab) as inner:
        for room, request in leaving(inner, "LIM-1"):
            answer = serve(inner.decoder, [request])[0]
            answers.append(answer)
            cases.append(judged(inner, f"{room} tokens of room, configured drafter", answer))
            if isinstance(inner.decoder, Scripted) and inner.longest:
                with scripted(inner.decoder, knowing(len(request.prompt), answer.output)):
                    answer = serve(inner.decoder, [request])[0]
                cases.append(judged(inner, f"{room} tokens of room, perfect scripted drafts", answer))
            near += sum(0 < len(r.proposals) < inner.longest for r in answer.rounds or ())
        guards = [traced(inner, "rounds with less room than K", near)] if inner.longest > 1 else []
    return Evidence("greedy", cases, [*guards, *own_drafts(lab, answers)])


@clause("LIM-2")
def test_what_does_not_fit_ends_or_is_refused_and_nobody_else_notices(lab: Lab) -> Evidence:
    cases = list[Case]()
    with short_context(lab) as inner:
        context, good = inner.claims.limits.max_context, greedy_requests(inner, "LIM-2/good", 2, inner.effort.span)
        alone = [serve(inner.decoder, [request])[0] for request in good]
        for room, request in leaving(inner, "LIM-2"):
            answer = serve(inner.decoder, [request])[0]
            what = f"{room} tokens of room"
            seen = [len(answer.output), [str(reason) for reason in answer.reasons]]
            cases.append({"what": f"{what}: tokens, reasons", "expected": [room, ["length"]], "actual": seen})
            cases += charged(what, answer)
            greedy = replace(request, max_tokens=room + inner.longest + 3)
            beyond = serve_any(inner.decoder, [greedy])[0]
            if beyond.refused is None:
                seen = [len(beyond.output), [str(reason) for reason in beyond.reasons]]
                label = f"{what}, {greedy.max_tokens} asked for: tokens, reasons"
                cases.append({"what": label, "expected": [room, [str(FinishReason.LENGTH)]], "actual": seen})
        for length in (context, context + 1):
            request = replace(good[0], prompt=prompt(inner, inner.random("LIM-2"), length))
            first, second, third = serve_any(inner.decoder, [good[0], request, good[1]])
            seen = [second.refused is not None, sum(map(len, second.samples)), second.finals]
            label = f"a prompt of {length} in a context of {context}: refused, tokens, final events"
            cases.append({"what": label, "expected": [True, 0, 1], "actual": seen})
            for one, other in zip(alone, (first, third), strict=True):
                expected, actual = list(one.output), list(other.output)
                tie = tie_of(inner, one.request, expected, actual)
                label = f"a request beside a prompt of {length}, against the request alone"
                cases.append({"what": label, "expected": expected, "actual": actual, **tie})
    return Evidence("values", cases)


@contextmanager
def short_drafter(lab: Lab) -> Iterator[tuple[Lab, Answer]]:
    """A laboratory whose drafter knows few positions, and its answer to a request that goes beyond them."""
    draft = lab.run.setup.draft
    if draft is None or not lab.drafts:
        raise NotOffered("there is no drafter checkpoint")
    with limited(draft, HELD) as copy, elsewhere(lab, draft=copy) as inner:
        base = greedy_requests(inner, "LIM-3", 1, HELD)[0]
        yield inner, serve(inner.decoder, [replace(base, prompt=base.prompt[:9])])[0]


@clause("LIM-3")
def test_output_stays_right_beyond_the_drafters_limit(lab: Lab) -> Evidence:
    with short_drafter(lab) as (inner, answer):
        case = judged(inner, f"a drafter of {HELD} positions", answer)
        passed = len(answer.request.prompt) + len(answer.output) - HELD
    guards = [Guard("tokens beyond the drafter's limit", max(0, passed)), *own_drafts(lab, [answer])]
    return Evidence("greedy", [case], guards)


@clause("LIM-4")
def test_no_draft_stands_beyond_the_drafters_limit(lab: Lab) -> Evidence:
    with short_drafter(lab) as (inner, answer):
        cases = by_the_reference(inner, f"a drafter of {HELD} positions, ", answer)
        beyond = sum(r.start >= HELD for r in answer.rounds or ())
    return Evidence("drafts", cases, [Guard("rounds beyond the drafter's limit", beyond)])


def silent(lab: Lab, request: Request, rounds: int) -> Answer:
    """The answer to a request whose first rounds a scripted drafter leaves undrafted, and the own one drafts then."""
    decoder = lab.decoder
    assert isinstance(decoder, Scripted)

    def wake(tick: int, ids: object) -> None:
        if tick == rounds:
            decoder.script(None)

    with scripted(decoder, lambda context: Proposal.certain(())):
        return serve_any(decoder, [request], on_tick=wake)[0]


def by_the_reference(lab: Lab, what: str, answer: Answer) -> list[Case]:
    """Every drafted round of an answer beside the reference drafter's, as DRF-1 has it."""
    twin = DraftTwin.of(lab)
    nats = twin.measured[0].nats
    lab.judge.forward((*answer.request.prompt, *answer.output))  # one pass serves every round
    return [
        {"what": f"{what}{where}", "drafts": list(r.proposals), "envelope": nats} | twin.greedy(tokens, r, nats)
        for where, tokens, r in drafted(answer)
    ]


@clause("LIM-5")
def test_more_requests_than_a_batch_holds_are_all_right(lab: Lab) -> Evidence:
    holds = held(lab.claims.limits)
    count = holds + 2 if lab.has("full-batches") else max(1, holds - 1)
    wanted = greedy_requests(lab, "LIM-5", count, lab.effort.span)
    room = min(lab.claims.limits.max_context, FAR) - lab.effort.span - 1
    longest = room if lab.thorough else min(room, 40)
    chance = lab.random("LIM-5")
    wanted = [replace(request, prompt=prompt(lab, chance, max(1, longest - i))) for i, request in enumerate(wanted)]
    answers = batch(lab, wanted, seconds=300.0)
    cases = [judged(lab, f"one of {count} requests at once", answer) for answer in answers]
    return Evidence("greedy", cases, [Guard("requests at once", at_once(answers), holds), *own_drafts(lab, answers)])


@clause("LIM-6")
def test_a_long_output_is_right_to_its_end(lab: Lab) -> Evidence:
    length = far(lab.claims.limits, lab.effort)
    chance, answers = lab.random("LIM-6"), list[Answer]()
    base = greedy_requests(lab, "LIM-6", 1, length if lab.has("long-outputs") else lab.effort.span)[0]
    while len(answers) < lab.effort.prompts and all(len(answer.output) < length for answer in answers):
        answers += serve(lab.decoder, [replace(base, prompt=prompt(lab, chance, 5))], 300.0)
    reached = max(len(answer.output) for answer in answers)
    guards = [Guard("tokens of the longest output", reached, length), *own_drafts(lab, answers)]
    guards += [] if lab.window is None else [Guard("windows passed", reached // lab.window, WINDOWS)]
    return Evidence("greedy", [judged(lab, f"up to {length} tokens", answer) for answer in answers], guards)


@clause("LIM-7")
def test_a_request_of_many_rounds_is_served_to_its_end(lab: Lab) -> Evidence:
    target = fixtures.path("table/chain")
    with elsewhere(lab, target=target, draft=None, draft_length=2, dtype=None, options={}) as inner:
        if not inner.longest:
            raise NotOffered("drafts cannot be scripted where no drafter is configured")
        steps = STEPS if lab.has("long-outputs") else lab.effort.span
        request = Request(prompt=(3,), max_tokens=steps, ignore_eos=inner.honours("ignore_eos"))
        with scripted(inner.decoder, lambda context: Proposal.certain((NEVER,) * context.max_draft)):
            answer = within(inner, request, 600.0 if lab.thorough else 40.0)
        case = judged(inner, f"{answer.request.max_tokens} tokens, every draft wrong", answer)
        rejected = sum(r.accepted < len(r.proposals) for r in answer.rounds or ())
        guards = [Guard("tokens", len(answer.output), ROUNDS), traced(inner, "rejections", rejected, ROUNDS)]
    return Evidence("greedy", [case], guards)


def within(lab: Lab, request: Request, seconds: float) -> Answer:
    """The answer to a request, or as much of it as comes within so many seconds, as if no more had been asked for."""
    stop = monotonic() + seconds

    def watch(tick: int, ids: Sequence[int]) -> None:
        if monotonic() > stop:
            with suppress(KeyError):  # it ended in this tick
                lab.decoder.cancel(ids[0])

    answer = serve_any(lab.decoder, [request], 2 * seconds + 60, on_tick=watch)[0]
    if answer.refused is not None:
        raise NotOffered(f"a request of {request.max_tokens} tokens was refused: {answer.refused}")
    cut = FinishReason.CANCELLED in answer.reasons
    return replace(answer, request=replace(request, max_tokens=max(1, len(answer.output)))) if cut else answer


@clause("LIM-8")
def test_drafts_come_back_behind_a_long_silence(lab: Lab) -> Evidence:
    if not lab.drafts:
        raise NotOffered("no drafter is configured")
    silence = 4 * lab.longest + 2
    request = greedy_requests(lab, "LIM-8", 1, silence + lab.effort.span)[0]
    room = lab.claims.limits.max_context - request.max_tokens
    request = replace(request, prompt=prompt(lab, lab.random("LIM-8/prompt"), max(1, min(BYTE, room))))
    answer = silent(lab, request, silence)
    cases = by_the_reference(lab, f"behind {silence} rounds without a draft, ", answer)
    return Evidence("drafts", cases, [Guard("rounds drafted behind the silence", len(cases))])
