"""Sampled evidence: every decision of a trace beside the random number that it must follow from."""

from collections.abc import Callable
from math import expm1
from typing import Any

import numpy as np

from specqual.contract import Key, Purpose, Request, Round, Rule
from specqual.reference.verify import dense, judged, residual

from .drive import Answer
from .evidence import Case
from .lab import Lab
from .tapes import interval

Number = Callable[[Key], float | None]

PARAMETERS: tuple[dict[str, Any], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "min_p": 0.02},
)


def slack_of(lab: Lab) -> float:
    """How far rounding may move a probability, or an edge between two tokens, of the engine under test."""
    return max(2 * expm1(lab.envelope()), 1e-9)


def decisions(lab: Lab, request: Request, rounds: list[Round], number: Number, *, scripted: bool) -> list[Case]:
    """Every decision of one sample's rounds; p from the reference, q from the trace, u by key."""
    found: list[Case] = []
    output: list[int] = []
    rule, slack = lab.claims.rule, slack_of(lab)
    for r in rounds:
        first = r.start + 1

        def key(purpose: Purpose, slot: int, start: int = first, sample: int = r.sample) -> Key:
            return Key(request.seed, sample, start, first + slot, purpose)  # noqa: B023 - used within the round

        def drawn(purpose: Purpose, slot: int, token: int, law: Any, u: float | None) -> Case:
            low, high = interval(law, token)
            place = {"purpose": str(purpose), "position": first + slot, "token": token}  # noqa: B023
            return place | {"u": u, "low": low, "high": high}

        p = lab.judge.law(request, output)
        for slot, draft in enumerate(r.proposals):
            q = dense(r.q[slot], p)
            if q is not None and not scripted:
                found.append(drawn(Purpose.DRAFT, slot, draft, q, number(key(Purpose.DRAFT, slot))))
        for slot in range(r.accepted + 1):
            if slot >= len(r.committed):
                break
            token = r.committed[slot]
            p = lab.judge.law(request, [*output, *r.committed[:slot]])
            rejected = slot == r.accepted and slot < len(r.proposals)
            if rule in (Rule.NONE, Rule.SAMPLER_MATCH):
                u = number(key(Purpose.BONUS, slot, first + slot))
                found.append(drawn(Purpose.BONUS, slot, token, p, u))
                continue
            if slot < len(r.proposals):
                draft = r.proposals[slot]
                law = judged(rule, dense(r.q[slot], p), draft, p)
                place = {"purpose": "accept", "position": first + slot, "token": draft}
                place |= {"u": number(key(Purpose.ACCEPT, slot)), "p": float(p[draft]), "q": float(law[draft])}
                found.append(place | {"accepted": not rejected})
                if rejected:
                    u = number(key(Purpose.RESIDUAL, slot))
                    mass = max(float(np.maximum(p - law, 0).sum()), 1e-300)  # what is left over, and how rounding grows
                    case = drawn(Purpose.RESIDUAL, slot, token, residual(p, law), u)
                    found.append(case | {"slack": min(1.0, slack / mass)})
            else:
                found.append(drawn(Purpose.BONUS, slot, token, p, number(key(Purpose.BONUS, slot))))
        output += r.committed
    return found


def case_of(lab: Lab, answer: Answer, number: Number, *, label: str, scripted: bool = False) -> Case:
    """All decisions of an answer's samples."""
    request, found = answer.request, list[Case]()
    for sample in range(request.n):
        lab.judge.forward((*request.prompt, *answer.samples[sample]))  # one pass serves every prefix
        rounds = [r for r in answer.rounds or () if r.sample == sample]
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
