"""Greedy outputs: every token under its own prefix."""

from collections.abc import Iterable, Sequence
from math import sqrt

from ..verdicts import Decision, Verdict
from . import Case, parting
from .values import NOISE


def _wrong_tokens(cases: Sequence[Case]) -> Iterable[tuple[int, int | None, str]]:
    for index, case in enumerate(cases):
        envelope = float(case["envelope"])
        columns = zip(case["output"], case["argmax"], case["logprob"], case["best"], case["runner_up"], strict=True)
        for place, (token, argmax, logprob, best, runner_up) in enumerate(columns):
            if token == argmax:
                continue
            if logprob is None:
                yield index, place, f"token {place} is {token}, which is no token of the vocabulary"
                continue
            regret, margin = best - logprob, best - runner_up
            if regret > envelope or margin > envelope:
                yield (
                    index,
                    place,
                    f"token {place} is {token} where the target's is {argmax}: {regret:.6g} nats worse under its own "
                    f"prefix, margin {margin:.6g}, and rounding explains at most {envelope:.3g}",
                )
        emitted = len(case["output"])
        if emitted < case["max_tokens"] and not (emitted and case["output"][-1] in case["ending"]):
            yield (
                index,
                None,
                f"{case['label']}: ended after {emitted} of {case['max_tokens']} tokens, though none ends it",
            )
        plain = case.get("plain")
        if plain is not None and case["bitwise"] and plain != case["output"]:
            apart = parting(plain, case["output"])
            place = min(len(plain), len(case["output"])) if apart is None else apart
            yield index, place, f"{case['label']}: differs from {case['against']} at token {place}; bitwise was claimed"


def decide(cases: Sequence[Case]) -> Decision:
    for index, place, detail in _wrong_tokens(cases):
        return Decision(Verdict.VIOLATED, detail, case=index, place=place)
    tokens = sum(len(case["output"]) for case in cases)
    ties = sum(t != a for case in cases for t, a in zip(case["output"], case["argmax"], strict=True))
    envelope = max((float(case["envelope"]) for case in cases), default=0.0)
    stated = max((float(case.get("stated", 0.0)) for case in cases), default=0.0)
    unused = f"; the {stated:.3g} that are claimed were not needed and not used" if stated > envelope else ""
    if ties:
        worst = max(b - t for case in cases for b, t in zip(case["best"], case["logprob"], strict=True))
        detail = f"{ties} of {tokens} tokens are ties, worst regret {worst:.3g} nats within {envelope:.3g}{unused}"
        own = [(regret, index, place) for index, case in enumerate(cases) for place, regret in case.get("own") or ()]
        if own:
            regret, index, place = max(own)
            detail += f"; in the engine's own scores {regret:.3g} at worst"
            if regret > sqrt(2) * float(cases[index]["envelope"]):  # what it chose by and what it scores by both round
                detail = f"token {place} is a tie in the reference and none in the engine's own scores; {detail}"
                return Decision(Verdict.INCONCLUSIVE, detail, case=index, place=place)
        return Decision(Verdict.TIE_EXPLAINED, detail)
    explained = f" (rounding would explain {envelope:.3g} nats)" if envelope > NOISE else ""
    detail = f"{tokens} tokens of {len(cases)} outputs, regret zero everywhere{explained}{unused}"
    return Decision(Verdict.EXACT, detail)
