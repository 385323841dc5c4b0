"""Flips: greedy outputs of an engine that promises no bits, and their tokens that are not what another side says.

The other side is asked under the output's own prefix: the target in exact arithmetic, or the same engine without
speculation. Rounding flips near ties and hardly anything else: how likely it does that to a token follows from the
margin there and from how far rounding moves two scores apart. So the evidence is a bet, request by request, on the
tokens that it flips less than once in a hundred times. Tokens of one request share their past, so what they win is
added up; requests are independent, so what those win is multiplied.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import repeat
from math import ceil, erfc, exp, expm1, fsum, log, sqrt

from .. import statistics
from ..verdicts import Decision, Verdict
from . import Case, greedy

RARE = 0.01  # chance of a flip up to which a token is bet on
STAKES = (1.0, 3.0, 10.0, 30.0, 100.0)  # of the capital, on each flip; every one is tried with a part of it
SAFE = 0.5  # of the capital: more is never lost on one request
DOUBT = log(20)  # evidence against two runs without speculation from which on rounding is more than the dtype says
CONFIDENCE = 3.0  # over n: the rate that none of n tokens leaves possible at 95 %


def chance(best: float, runner_up: float, spread: float, sides: int) -> float:
    """How likely rounding flips a token at most, where it moves two scores apart by `spread` nats (root mean square).

    There are not more candidates than the mass beside the best leaves room for, each as near as the runner-up. `sides`
    counts those that round: both, or one where the other is exact. Zero where nothing rounds.
    """
    margin = best - runner_up
    if margin > 30 * spread:
        return 0.0
    candidates = max(1.0, -expm1(best) / exp(runner_up))
    return min(1.0, sides * candidates * erfc(margin / spread / sqrt(2)) / 2) if spread > 0 else 1.0


def rare(case: Case) -> Iterator[tuple[int, float]]:
    """The tokens that are bet on: places, and how likely rounding flips them."""
    for place, (best, runner_up) in enumerate(zip(case["best"], case["runner_up"], strict=True)):
        flips = chance(float(best), float(runner_up), float(case["spread"]), int(case["sides"]))
        if flips <= RARE:
            yield place, flips


def surprises(case: Case) -> list[int]:
    """The places of flips that were bet on."""
    flipped = set(case["flips"])
    return [place for place, _ in rare(case) if place in flipped]


def capital(case: Case, stake: float, flipped: Collection[int]) -> float:
    """What one request makes of a capital of one, were these its flips. At most `SAFE` of it may be lost.

    A bet is made or left before its token is looked at, and is fair if rounding alone flips tokens.
    """
    lost = won = 0.0
    for place, flips in rare(case):
        if lost + stake * flips <= SAFE:
            lost += stake * flips
            won += stake * (place in flipped)
    return 1.0 - lost + won


def against(cases: Sequence[Case], flipped: Sequence[Collection[int]]) -> float:
    """Log of the e-value against rounding as the only reason for these flips of the cases."""
    paths = (fsum(log(capital(*one)) for one in zip(cases, repeat(s), flipped, strict=False)) for s in STAKES)
    return statistics.mean(list(paths))


def visible(cases: Sequence[Case], alpha: float) -> int | None:
    """The number of requests with one surprising flip each that would have been too many; None if none would be."""
    first = [[place for place, _ in rare(case)][:1] for case in cases]

    def evidence(count: int) -> float:
        return against(cases, [*first[:count], *([] for _ in first[count:])])

    count = bisect_left(range(len(cases) + 1), -log(alpha), key=evidence)
    return count if count <= len(cases) else None


def decide(cases: Sequence[Case]) -> Decision:
    """Every token within the envelope of its own prefix, and no more flips than rounding explains.

    What an engine flips is speculation's fault where it flips as rounding does without it. Where it does not, the dtype
    says nothing about this engine, and what is left is to compare the two arms request by request.
    """
    said = greedy.decide(cases)
    if said.verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE):
        return said
    on, off = ([case for case in cases if case["arm"] == arm] for arm in ("on", "off"))
    alpha = min((float(case["alpha"]) for case in on), default=1.0)
    won, beside = (max(0.0, against(arm, [case["flips"] for case in arm])) for arm in (on, off))
    if won >= -log(alpha):
        index = max(range(len(cases)), key=lambda i: len(surprises(cases[i])) if cases[i]["arm"] == "on" else -1)
        detail = f"{_surprise(on)}; chance {exp(-won):.2g}"
        if off:
            detail += f"; between two runs without speculation {_surprise(off)}"
        if beside > DOUBT and beyond(on, off) < -log(alpha):
            detail += ": the engine rounds more than its dtype does, with and without speculation"
            return Decision(Verdict.INCONCLUSIVE, detail)
        return Decision(Verdict.VIOLATED, detail, case=index, place=surprises(cases[index])[0])
    return Decision(
        said.verdict if not any(case["flips"] for case in cases) else Verdict.TIE_EXPLAINED, _claim(on, off)
    )


def beyond(on: Sequence[Case], off: Sequence[Case]) -> float:
    """Log of the e-value against two arms that flip alike: where speculation changes nothing, either answer to a prompt
    is as likely as the other to hold more surprising flips, however much the engine rounds."""
    more = [float(len(surprises(a)) - len(surprises(b))) for a, b in zip(on, off, strict=True)]
    return float(statistics.excess(more, [0.0] * len(more)).max())


def _tokens(cases: Sequence[Case]) -> int:
    return sum(len(case["output"]) for case in cases)


def _surprise(cases: Sequence[Case]) -> str:
    """How many flips are no near ties, and how many rounding would leave to be expected."""
    count = sum(len(surprises(case)) for case in cases)
    where = sum(bool(surprises(case)) for case in cases)
    expected = fsum(flips for case in cases for _, flips in rare(case))
    return (
        f"{count} of {_tokens(cases)} tokens, in {where} of {len(cases)} requests, are not what {cases[0]['against']} "
        f"says, where rounding flips fewer than one in a hundred ({expected:.2g} expected)"
    )


def _flipped(cases: Sequence[Case]) -> str:
    flips = sum(len(case["flips"]) for case in cases)
    return (
        f"{flips} of {_tokens(cases)} tokens in {sum(bool(case['flips']) for case in cases)} of {len(cases)} requests"
    )


def _claim(on: Sequence[Case], off: Sequence[Case]) -> str:
    """What was seen of a sound engine, with the lengths and the batch that it holds for."""
    regrets = sorted(
        best - own for case in on for best, own in zip(case["best"], case["logprob"], strict=True) if own is not None
    )
    tokens = len(regrets)
    if not tokens:
        return "no token was emitted"
    ties = sum(t != a for case in on for t, a in zip(case["output"], case["argmax"], strict=True))
    longest = max(len(case["prompt"]) + len(case["output"]) for case in on)
    form = f"length up to {longest}" + "".join(
        f", {name} {on[0][name]}" for name in ("batch", "dtype") if name in on[0]
    )
    said = f"token-equal{' up to ties' if ties else ''} over {tokens} tokens of {len(on)} requests, {form}"
    if ties:
        envelope, high = max(float(case["envelope"]) for case in on), regrets[ceil(0.99 * tokens) - 1]
        said += (
            f": {ties} ties, regret {fsum(regrets) / tokens:.3g} nats in the mean, {high:.3g} at the 99th percentile, "
            f"{regrets[-1]:.3g} at worst within {envelope:.3g}"
        )
    said += f"; 0 of {tokens} tokens flipped beyond a tie: rate below {min(1.0, CONFIDENCE / tokens):.2g} (95 %)"
    if on[0]["against"]:
        said += f"; {_flipped(on)} are not what {on[0]['against']} says"
        said += f", beside {_flipped(off)} between two runs without it" if off else ""
    enough = visible(on, float(on[0]["alpha"]))
    if enough is not None:
        said += f"; surprising flips in {enough} requests would have been too many"
    return said
