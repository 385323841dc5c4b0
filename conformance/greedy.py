"""Greedy evidence: outputs judged token by token, and a failing one shrunk to a minimal history."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

from specqual.contract import Request

from .drive import Answer
from .evidence import Case, decide
from .lab import Lab
from .verdicts import Decision, Verdict

Serve = Callable[[Request], Answer]


def case_of(
    lab: Lab, answer: Answer, *, label: str, envelope: float, plain: Sequence[int] | None = None, against: str = ""
) -> Case:
    """One judged output. `plain` is the output that it must equal, bit for bit where that is claimed."""
    judged = lab.judge.judge(answer.request, answer.output)
    case: Case = {
        "label": label,
        "prompt": list(answer.request.prompt),
        "max_tokens": answer.request.max_tokens,
        "output": list(answer.output[: len(judged.argmax)]),
        "argmax": list(judged.argmax),
        "logprob": list(judged.logprob),
        "best": list(judged.best),
        "runner_up": list(judged.runner_up),
        "envelope": envelope,
        "plain": None if plain is None else list(plain),
        "against": against,
        "bitwise": lab.claims.greedy.bitwise,
        "history": answer.history(),
    }
    decision = verdict_of(case)
    if decision.place is not None and decision.place < len(judged.argmax):
        case["top"] = [list(pair) for pair in lab.judge.top(answer.request, answer.output[: decision.place])]
    return case


def verdict_of(case: Case) -> Decision:
    return decide({"kind": "greedy", "cases": [case], "guards": []})


def shrink(request: Request, wrong: Callable[[Request], int | None], place: int, seconds: float) -> Request:
    """The smallest failing request that removing tokens finds in this time; `wrong` gives the first wrong place."""
    stop = monotonic() + seconds
    best = replace(request, max_tokens=place + 1)
    found = wrong(best)
    if found is None:  # it fails only in its full length: keep that
        best, found = request, place
    size = len(best.prompt) // 2
    while size and monotonic() < stop:
        start = 0
        while start < len(best.prompt) and monotonic() < stop:
            rest = best.prompt[:start] + best.prompt[start + size :]
            shorter = replace(best, prompt=rest)
            found = wrong(shorter) if rest else None
            if found is None:
                start += size
            else:
                best = replace(shorter, max_tokens=min(best.max_tokens, found + 1))
        size //= 2
    return best


def minimal(lab: Lab, serve: Serve, case: Case, request: Request, rebuild: Callable[[Answer], Case]) -> Case:
    """The case of the smallest request that still fails, or the given case if it fails only once."""
    place = verdict_of(case).place
    if place is None:
        return case
    latest: dict[Request, Case] = {}

    def wrong(candidate: Request) -> int | None:
        latest[candidate] = again = rebuild(serve(candidate))
        decision = verdict_of(again)
        return decision.place if decision.verdict is Verdict.VIOLATED else None

    small = shrink(request, wrong, place, lab.effort.shrinking)
    return latest.get(small, case)
