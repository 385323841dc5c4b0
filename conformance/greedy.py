"""Greedy evidence: outputs judged token by token, and a failing one shrunk to a minimal history."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from specqual.contract import Request, Sampling, Scoring

from .drive import Answer, guarded
from .evidence import Case, decide
from .lab import Lab
from .verdicts import Decision, Verdict

Serve = Callable[[Request], Answer]
Wrong = Callable[[Request], int | None]


def case_of(
    lab: Lab, answer: Answer, *, label: str, envelope: float, plain: Sequence[int] | None = None, against: str = ""
) -> Case:
    """One judged output. `plain` is the output that it must equal, bit for bit where that is claimed."""
    request = answer.request
    judged = lab.judge.judge(request, answer.output)
    case: Case = {
        "label": label,
        "prompt": list(request.prompt),
        "max_tokens": request.max_tokens,
        "ending": [*request.stop_ids, *(() if request.ignore_eos else lab.claims.limits.eos_ids)],
        "output": list(answer.output[: len(judged.argmax)]),
        "argmax": list(judged.argmax),
        "logprob": list(judged.logprob),
        "best": list(judged.best),
        "runner_up": list(judged.runner_up),
        "envelope": envelope,
        "stated": lab.claims.greedy.envelope,
        "plain": None if plain is None else list(plain),
        "against": against,
        "bitwise": lab.claims.greedy.bitwise,
        "history": answer.history(),
        "acceptances": sum(r.accepted > 0 for r in answer.rounds or ()),
        "rejections": sum(r.accepted < len(r.proposals) for r in answer.rounds or ()),
    }
    case["own"] = own_regrets(lab, request, case)
    decision = verdict_of(case)
    if decision.place is not None and decision.place < len(judged.argmax):
        case["history"] = answer.history(decision.place)
        case["top"] = [list(pair) for pair in lab.judge.top(request, answer.output[: decision.place])]
    return case


def own_regrets(lab: Lab, request: Request, case: Case) -> list[tuple[int, float]] | None:
    """The tokens that are not the reference's best, with how much worse than the best they are in the engine's own
    scores (nats); None where it offers none, or where they would not be those that the token was chosen by."""
    decoder, columns = lab.decoder, zip(case["output"], case["argmax"], case["logprob"], strict=True)
    if not isinstance(decoder, Scoring) or request.sampling != Sampling() or request.min_tokens:
        return None
    places = [i for i, (token, best, logprob) in enumerate(columns) if token != best and logprob is not None]
    if not places:
        return []
    output = tuple(case["output"][: places[-1] + 1])
    regrets = guarded("score", lambda: decoder.score(request.prompt, output)).regret
    return [(place, float(regrets[place])) for place in places]


def verdict_of(case: Case) -> Decision:
    return decide({"kind": "greedy", "cases": [case], "guards": []})


def shrink(request: Request, wrong: Wrong, place: int, attempts: int, round_: int) -> Request:
    """A small failing request; `wrong` gives the first wrong place of a candidate, or None if it is right.

    Short tails of the prompt first, then a smaller budget (`round_` is the most that one round commits: the budget
    shapes the last rounds), then pieces of the prompt. The number of attempts is bounded, so that slow machines find
    the same request.
    """
    best, left = request, attempts

    def fails(candidate: Request) -> int | None:
        nonlocal left
        left -= 1
        return wrong(candidate) if left >= 0 and candidate.prompt else None

    for size in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        if size < len(request.prompt):
            found = fails(replace(request, prompt=request.prompt[-size:]))
            if found is not None:
                best, place = replace(request, prompt=request.prompt[-size:]), found
                break
    for budget in (place + 1, place + 2, place + 1 + round_):
        if budget < best.max_tokens:
            found = fails(replace(best, max_tokens=budget))
            if found is not None:
                best = replace(best, max_tokens=budget)
                break
    size = len(best.prompt) // 2
    while size and left > 0:
        start = 0
        while start < len(best.prompt) and left > 0:
            shorter = replace(best, prompt=best.prompt[:start] + best.prompt[start + size :])
            if fails(shorter) is None:
                start += size
            else:
                best = shorter
        size //= 2
    return best


def minimal(lab: Lab, serve: Serve, case: Case, request: Request, rebuild: Callable[[Answer], Case]) -> Case:
    """The case of the smallest request that still fails, or the given case if it fails only once; it says what it was
    shrunk from."""
    place = verdict_of(case).place
    latest: dict[Request, Case] = {}

    def wrong(candidate: Request) -> int | None:
        latest[candidate] = again = rebuild(serve(candidate))
        decision = verdict_of(again)
        if decision.verdict is not Verdict.VIOLATED:
            return None
        return len(again["output"]) if decision.place is None else decision.place

    start = len(case["output"]) if place is None else place  # an end too early is behind the last token
    try:
        small = shrink(request, wrong, start, lab.effort.attempts, lab.longest + 1)
    except Exception:  # a decoder that is wrong may break on another request, and the violation stands
        lab.renew()
        return case
    shrunk = f"from a prompt of {len(request.prompt)} and a budget of {request.max_tokens}"
    return latest.get(small, case) | {"shrunk": shrunk}
