"""Sampled evidence: every decision of a trace beside the random number that it must follow from."""

from collections.abc import Callable, Iterator
from math import exp
from typing import Any

import numpy as np

from specqual.contract import Key, Purpose, Request, Round, Rule
from specqual.reference.sampling import Law
from specqual.reference.verify import dense, judged, residual

from .bracket import bracket, variation
from .drive import Answer
from .evidence import Case
from .lab import Lab
from .rounding import EXACT
from .tapes import interval

Number = Callable[[Key], float | None]
SUMS = 1e-6  # by which sums of a reported q may differ from the float32 ones that were drawn from
TRACE = 1e-12  # a probability that stands for what rounding may make of zero

PARAMETERS: tuple[dict[str, Any], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "min_p": 0.02},
)


def slack_of(lab: Lab) -> float:
    """How far rounding may move a probability, or an edge between two tokens, at temperature one."""
    return max(variation(lab.envelope(), 1.0), EXACT)


def decisions(lab: Lab, request: Request, rounds: list[Round], number: Number, *, scripted: bool) -> list[Case]:
    """Every decision of one sample's rounds; p from the reference, q from the trace, u by key."""
    found: list[Case] = []
    output: list[int] = []
    for r in rounds:
        found += [] if scripted else _drafted(lab, request, r, number)
        found += verified(lab, request, output, r, number)
        output += r.committed
    return found


def drawn(key: Key, token: int, law: Law, slack: float, number: Number) -> Case:
    """One token drawn from a law [V], and how far rounding may move the edges of its interval."""
    low, high = interval(law, token)
    place = {"purpose": str(key.purpose), "position": key.position, "token": token}
    return place | {"u": number(key), "low": low, "high": high, "slack": max(slack, EXACT)}


def _drafted(lab: Lab, request: Request, r: Round, number: Number) -> Iterator[Case]:
    nothing = np.zeros(lab.judge.target.vocab_size)
    for slot, (draft, law) in enumerate(zip(r.proposals, r.q, strict=True)):
        q = dense(law, nothing)
        if q is not None:
            key = Key(request.seed, r.sample, r.start + 1, r.start + 1 + slot, Purpose.DRAFT)
            yield drawn(key, draft, q, SUMS, number)


def verified(
    lab: Lab, request: Request, output: list[int], r: Round, number: Number, more: float = 0.0
) -> Iterator[Case]:
    """The decisions of one round behind an output: acceptance of its drafts, and the token behind them. `more` is how
    far q may be off (total variation), where it is not taken as the round says."""
    rule, nats, first = lab.claims.rule, lab.envelope(), r.start + 1
    alone = rule in (Rule.NONE, Rule.SAMPLER_MATCH)  # the target's draw knows nothing of the round
    for slot, token in enumerate(r.committed[: r.accepted + 1]):
        given = bracket(lab.judge.row(request, [*output, *r.committed[:slot]]), request.sampling, nats)
        p = given.law if given.law[token] else given.loose
        position, rejected = first + slot, slot == r.accepted
        if alone or slot == len(r.proposals):
            key = Key(request.seed, r.sample, position if alone else first, position, Purpose.BONUS)
            yield drawn(key, token, p, given.slack, number)
            continue
        draft = r.proposals[slot]
        law = judged(rule, dense(r.q[slot], p), draft, given.law)
        u = number(Key(request.seed, r.sample, first, position, Purpose.ACCEPT))
        place = {"purpose": "accept", "position": position, "token": draft, "accepted": not rejected, "u": u}
        wide = given.slack + more
        yield place | {"p": float(given.law[draft]), "q": float(law[draft]), "slack": max(wide, EXACT)}
        if rejected:
            left = np.maximum(p - law, 0)
            mass = float(left.sum())  # what is left over; the smaller, the further rounding moves its shares
            if not left[token] and p[token] * exp(nats / request.sampling.temperature) > law[token]:
                left[token] = TRACE  # nothing in the reference, something within rounding
            slack = min(1.0, 2 * wide / max(mass - wide, 1e-300))
            key = Key(request.seed, r.sample, first, position, Purpose.RESIDUAL)
            nothing = {"left": mass, "moved": wide} if slack == 1 else {}
            yield drawn(key, token, residual(left, 0 * law), slack, number) | nothing


def case_of(lab: Lab, answer: Answer, number: Number, *, label: str, scripted: bool = False) -> Case:
    """All decisions of an answer's samples."""
    request, found = answer.request, list[Case]()
    for sample in range(request.n):
        lab.judge.forward((*request.prompt, *answer.samples[sample]))  # one pass serves every prefix
        rounds = answer.rounds_of(sample)
        found += decisions(lab, request, rounds, number, scripted=scripted)
    return {
        "label": label,
        "prompt": list(request.prompt),
        "samples": [list(ids) for ids in answer.samples],
        "history": answer.history(),
        "slack": slack_of(lab),
        "decisions": found,
    }


def counted(cases: list[Case], purpose: str, accepted: bool | None = None) -> int:
    """How many decisions of this purpose (and outcome) were seen."""
    return sum(
        decision["purpose"] == purpose and accepted in (None, decision.get("accepted"))
        for case in cases
        for decision in case["decisions"]
    )
