"""Parameters with a history, chosen so that the tokens of a span decide what may stand behind them."""

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from specqual.contract import Sampling
from specqual.reference.sampling import processed

from .drive import Answer, NotOffered
from .generators import usable

if TYPE_CHECKING:
    from .lab import Lab

RUNGS = 48  # tokens of a ladder
PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")


def ladder(lab: "Lab", chance: Random, top: float, step: float, rungs: int = RUNGS) -> tuple[tuple[int, float], ...]:
    """A bias that puts some tokens far above all others, each `step` nats below the one before."""
    ids = usable(lab)
    chosen = chance.sample(ids, min(rungs, len(ids)))
    return tuple((token, top - step * place) for place, token in enumerate(chosen))


def histories(lab: "Lab", chance: Random, temperature: float = 0.0) -> dict[str, Sampling]:
    """Parameters by name, as far as they are honoured; NotOffered if no penalty is.

    On a ladder an emitted token is pushed below the others, so that each token hangs on all those before it in the
    span, whatever the target says; on two rungs they take turns, and how often each has stood in the span decides which
    is next. At a temperature the rungs are near enough for chance to choose among them.
    """
    top, step, fall = (50.0, 1.0, 3.0) if temperature else (400.0, 8.0, 20.0)
    steep, two = ladder(lab, chance, top, step), ladder(lab, chance, top, step, 2)
    found = {
        "presence on a ladder": Sampling(presence_penalty=1e3, logit_bias=steep),
        "frequency on two rungs": Sampling(frequency_penalty=fall, logit_bias=two),
        "repetition on a ladder": Sampling(repetition_penalty=3.0, logit_bias=steep),
        "all three": Sampling(presence_penalty=1.5, frequency_penalty=0.8, repetition_penalty=1.3),
    }
    kept = {name: replace(s, temperature=temperature) for name, s in found.items() if lab.honours(*changed(s))}
    if not kept:
        raise NotOffered("the decoder claims to honour no penalty together with logit_bias, nor all three penalties")
    return kept if lab.has("penalties") else {"none": Sampling(temperature=temperature)}


def changed(sampling: Sampling) -> tuple[str, ...]:
    """Names of the fields that are not at their defaults."""
    default = Sampling()
    return tuple(name for name in Sampling.__dataclass_fields__ if getattr(sampling, name) != getattr(default, name))


def decided_inside(lab: "Lab", answer: Answer) -> int:
    """How many greedy tokens would be others if their own span's tokens were left out of the history."""
    request, output, count = answer.request, answer.output, 0
    raw = lab.judge.logits((*request.prompt, *output[:-1]))[len(request.prompt) - 1 :]

    def best(place: int, known: int) -> int:
        return int(np.argmax(processed(raw[place], request.sampling, request.prompt, output[:known])))

    for r in answer.rounds or ():
        start = r.start + 1 - len(request.prompt)
        count += sum(best(place, place) != best(place, start) for place in range(start + 1, start + len(r.committed)))
    return count
