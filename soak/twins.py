"""The twin: what a decoder in which nothing is ever disturbed says of the same requests, and holds of them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from specqual.conformance.drive import serve
from specqual.conformance.states import first_difference
from specqual.conformance.twin import look
from specqual.contract import Proposal, Request, Round, ScriptContext, Scripted, SeedContract, Traced

from .bench import Bench
from .calls import called
from .course import Looked

FILL = 400  # ticks in which a prompt must be filled


def alone(bench: Bench) -> None:
    """Sampled requests once more, each alone in the undisturbed twin with the same drafts: every token the same."""
    claims, twin = bench.stage.decoder.claims, bench.stage.twin
    if not claims.greedy.bitwise or not all(isinstance(twin, protocol) for protocol in (Scripted, Traced)):
        return
    for course in bench.outcome.courses:
        if course.place not in bench.plan.alone or course.refused is not None or not any(course.samples):
            continue
        if not course.request.sampling.greedy and claims.seed is SeedContract.NONE:
            continue
        called(twin.script, retold(course.rounds, course.request.n))
        answer = serve(twin, [course.request])[0]
        called(twin.script, None)
        bench.counts["requests served again, alone"] += 1
        for sample, (mine, theirs) in enumerate(zip(course.samples, answer.samples, strict=True)):
            told = list(theirs[: len(mine)] if course.cancelled else theirs)
            if not bench.expect("isolation", course, f"sample {sample}, against itself alone,", told, mine):
                break


def retold(rounds: Sequence[Round], samples: int) -> Any:
    """A script that drafts what these rounds drafted."""
    drafts: dict[tuple[int, int], Proposal] = {}
    for sample in range(samples):
        own = [r for r in rounds if r.sample == sample]
        drafts |= {(sample, index): Proposal(r.proposals, r.q) for index, r in enumerate(own)}

    def script(context: ScriptContext) -> Proposal:
        return drafts.get((context.sample, context.round_index), Proposal.certain(()))

    return script


def states(bench: Bench) -> None:
    """States that were looked at equal those of the twin that was given the same tokens as a prompt, bit for bit."""
    claims, twin = bench.stage.decoder.claims, bench.stage.twin
    if not claims.greedy.bitwise:
        return
    for seen in bench.outcome.looked:
        if len(seen.tokens) + 2 > claims.limits.max_context:
            continue  # a prompt of that length leaves the twin no room to say anything
        found = replayed(twin, seen, claims)
        if found is None:
            bench.amiss.append(("state", f"{len(seen.tokens)} tokens were never filled in a twin", seen.place))
            continue
        bench.counts["states replayed"] += 1
        differing = first_difference(found.tensors, seen.state.tensors, seen.state.positions, found.positions, 0.0)
        for what, expected, actual in differing:
            told = f"request {seen.place}, {len(seen.tokens)} tokens: {what} is {actual}, of the twin {expected}"
            bench.amiss.append(("state", told, seen.place))
            break


def replayed(twin: Any, seen: Looked, claims: Any) -> Any:
    """The twin's state behind these tokens as a prompt, None where it never comes to be."""
    request = Request(prompt=seen.tokens, max_tokens=2, ignore_eos="ignore_eos" in claims.sampling)
    request_id = called(twin.submit, request)
    try:
        for _ in range(FILL):
            called(twin.step)
            state = called(look, twin, request_id, 0)
            if state is not None and called(twin.rounds, request_id) and state.length == len(seen.tokens):
                return state
        return None
    finally:
        _end(twin, request_id)


def _end(twin: Any, request_id: int) -> None:
    with suppress(KeyError):
        called(twin.cancel, request_id, known=(KeyError,))
    called(twin.step)
