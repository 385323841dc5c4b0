"""Long sampled outputs on the run's own target, with speculation and without it: the ways in which they may lean.

A token's gain is f(x) - E_p f, where f in [0, 1] was fixed before the token x: given everything earlier its mean is the
bias of that token. An output's lean is the mean gain of its tokens, which may depend on one another as they like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from random import Random

import numpy as np

from specqual.contract import Decoder, Request
from specqual.reference.sampling import Law, order

from .blackbox import CEILING
from .bracket import bracket
from .contexts import Draft
from .drive import Answer, serve, stray
from .evidence import Case
from .judge import Judge
from .kinds import leans
from .statistics import noise

PATIENCE = 600.0  # seconds for a batch of long outputs
DIGITS = 6  # of a lean, in evidence


def gains(p: Law, q: Law | None, token: int, v: float) -> dict[str, float]:
    """The gain of a token drawn from p [V] by every lean; v is its number for the integral transform.

    Towards unlikely tokens and high ids: the transform in falling order of probability, and in that of the vocabulary.
    Towards the likeliest token: whether it is the one. Towards the draft: q [V] as a part of its largest value.
    """
    ranked = order(p)
    place = int(np.flatnonzero(ranked == token)[0])
    best = int(ranked[0])
    found = {
        "to unlikely tokens": float(p[ranked[:place]].sum() + v * p[token]) - 0.5,
        "to high ids": float(p[:token].sum() + v * p[token]) - 0.5,
        "to the likeliest token": float(token == best) - float(p[best]),
    }
    if q is not None and q.max() > 0:
        f = q / q.max()
        found["to the draft"] = float(f[token]) - float((p * f).sum())
    return found


@dataclass(slots=True)
class Arm:
    """What one arm has answered: the lean of each output by name, and what rounding explains of it."""

    judge: Judge
    draft: Draft
    nats: float
    seed: int
    leans: list[dict[str, float]] = field(default_factory=list)
    slack: list[float] = field(default_factory=list)
    accepted: int = 0  # rounds with an accepted draft, and with a rejected one, where the decoder is Traced
    rejected: int = 0

    def see(self, answer: Answer) -> None:
        request, output = answer.request, answer.output
        self.judge.forward((*request.prompt, *output))  # one pass serves every prefix
        gained, slack = dict[str, list[float]](), 0.0
        for place, token in enumerate(output):
            given = bracket(self.judge.row(request, output[:place]), request.sampling, self.nats)
            v, q = noise(self.seed, len(self.leans), place), self.draft(request, output[:place])
            for lean, gain in gains(given.law, q, token, v).items():
                gained.setdefault(lean, []).append(gain)
            slack += given.slack
        self.leans.append({lean: round(sum(each) / len(each), DIGITS) for lean, each in gained.items()})
        self.slack.append(slack / len(output))
        self.accepted += sum(r.accepted > 0 for r in answer.rounds or ())
        self.rejected += sum(r.accepted < len(r.proposals) for r in answer.rounds or ())


@dataclass(slots=True)
class Pairs:
    """Both arms on the same prompts. The trajectory of a lean is of pairs and powers of ten."""

    on: Arm
    off: Arm
    told: Mapping[str, object]  # of every case
    trajectories: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def cases(self) -> list[Case]:
        """The evidence so far, a case for each lean that every output has."""
        both = [*self.on.leans, *self.off.leans]
        allowed = [round(sum(pair), DIGITS + 3) for pair in zip(self.on.slack, self.off.slack, strict=True)]
        return [
            {
                "label": f"lean {lean}",
                "on": [one[lean] for one in self.on.leans],
                "off": [one[lean] for one in self.off.leans],
                "allowed": allowed,
                "trajectory": self.trajectories.setdefault(lean, [(0, 0.0)]),
            }
            | dict(self.told)
            for lean in (both[0] if both else ())
            if all(lean in one for one in both)
        ]

    def mark(self) -> None:
        for lean, case in zip(self.trajectories, self.cases(), strict=True):
            power = float(leans.evidence([case])[-1]) / log(10)
            self.trajectories[lean].append((len(self.on.leans), round(min(power, CEILING), 3)))


def listen(
    pairs: Pairs, decoders: tuple[Decoder, Decoder], requests: Sequence[Request], rows: int, chance: Random
) -> list[Case]:
    """Serve requests with speculation and without, `rows` at a time and each under a new seed, until the evidence
    suffices or they are used up; an answer that holds what no decoder may say ends them, as the only case."""
    cases = list[Case]()
    for start in range(0, len(requests), rows):
        for arm, decoder, name in zip((pairs.on, pairs.off), decoders, ("with", "without"), strict=True):
            batch = [replace(request, seed=chance.randrange(2**63)) for request in requests[start : start + rows]]
            for answer in serve(decoder, batch, PATIENCE):
                wrong = stray(answer, arm.judge.target.vocab_size)
                if wrong is not None:
                    prompt = list(answer.request.prompt)
                    return [{"label": f"output {name} speculation behind {prompt}", "stray": wrong}]
                arm.see(answer)
        cases = pairs.cases()
        pairs.mark()
        if cases and leans.evidence(cases).max() >= leans.enough(leans.rate_of(cases)):
            break
    return cases
