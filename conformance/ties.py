"""Two outputs of one request that should be one: equal, or apart at a tie."""

from collections.abc import Sequence

from specqual.contract import Request, Rule

from .bracket import bracket
from .kinds import Case, parting
from .lab import Lab
from .tapes import interval


def tie_of(lab: Lab, request: Request, expected: Sequence[int], actual: Sequence[int]) -> Case:
    """What a comparison of two outputs brings along where they part and equality was not promised, else nothing.

    `regret` (nats) is the worst of what decides: the expected token where they part, and, from there on, every token
    of the actual output under its own prefix. An output that only ends elsewhere is no tie.
    """
    parts = parting(expected, actual)
    if parts is None or lab.must_repeat:
        return {}
    regrets: list[float] = []
    for output in (expected[: parts + 1], actual):
        judged = lab.judge.judge(request, output)
        pairs = list(zip(judged.best, judged.logprob, strict=True))[parts:]
        regrets += [float("inf") if logprob is None else best - logprob for best, logprob in pairs]
    return {"tie": {"place": parts, "regret": max(regrets), "envelope": lab.envelope()}}


def sampled_tie_of(lab: Lab, request: Request, expected: Sequence[int], actual: Sequence[int]) -> Case:
    """The same for outputs drawn from the same numbers: one number gave both tokens, so their intervals must touch, up
    to what rounding does to their edges. Only where the target's draw stands alone; elsewhere nothing is said."""
    parts = parting(expected, actual)
    if parts is None or lab.must_repeat or lab.claims.rule not in (Rule.NONE, Rule.SAMPLER_MATCH):
        return {}
    given = bracket(lab.judge.row(request, expected[:parts]), request.sampling, lab.envelope())
    (_, end), (start, _) = (interval(given.loose, token) for token in sorted((expected[parts], actual[parts])))
    return {"tie": {"place": parts, "regret": max(0.0, start - end), "envelope": 2 * given.slack}}
