"""Long sampled outputs on the run's own target, each token under its own prefix: bets on the ways it may lean.

A gain is f(x) - E_p f, where f in [0, 1] was fixed before the token x: given everything earlier its mean is the bias
of that token. Bets and intervals are made token by token, so nothing is assumed of the tokens of one request.
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
from .drive import Answer, serve
from .evidence import Case
from .judge import Judge
from .statistics import Bets, mean, noise, to_dict, update

PATIENCE = 600.0  # seconds for a batch of long outputs


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
    """What the tokens of one arm have shown of one lean; the trajectory is of tokens and powers of ten."""

    plain: Bets = field(default_factory=Bets)
    up: Bets = field(default_factory=Bets)  # bets that the lean is there
    down: Bets = field(default_factory=Bets)  # that it is away from it
    slack: float = 0.0  # Σ of what rounding explains, token by token
    trajectory: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])

    def see(self, gain: float, slack: float) -> None:
        self.plain = update(self.plain, [(gain,)])
        self.up = update(self.up, [(max(-1.0, gain - slack),)])
        self.down = update(self.down, [(max(-1.0, -gain - slack),)])
        self.slack += slack

    def mark(self) -> None:
        power = mean([self.up.log_e, self.down.log_e]) / log(10)
        self.trajectory.append((self.plain.requests, round(min(power, CEILING), 3)))


@dataclass(slots=True)
class Leans:
    """Judges the answers of one arm; `allowances` are the biases that its bets tolerate, by lean."""

    judge: Judge
    draft: Draft
    nats: float
    seed: int
    allowances: Mapping[str, float] = field(default_factory=dict)
    arms: dict[str, Arm] = field(default_factory=dict)
    answers: int = 0

    def see(self, answer: Answer) -> None:
        request, output = answer.request, answer.output
        self.judge.forward((*request.prompt, *output))  # one pass serves every prefix
        for place, token in enumerate(output):
            given = bracket(self.judge.row(request, output[:place]), request.sampling, self.nats)
            v, q = noise(self.seed, self.answers, place), self.draft(request, output[:place])
            for lean, gain in gains(given.law, q, token, v).items():
                allowed = self.allowances.get(lean, 0.0)
                arm = self.arms.setdefault(lean, Arm(Bets(), Bets(allowed), Bets(allowed)))
                arm.see(min(max(gain, -1.0), 1.0), given.slack)
        self.answers += 1

    @property
    def log_e(self) -> float:
        """The log e-value of all bets together."""
        return mean([bets.log_e for arm in self.arms.values() for bets in (arm.up, arm.down)])


def listen(
    decoder: Decoder, leans: Leans, requests: Sequence[Request], rows: int, chance: Random, enough: float
) -> None:
    """Serve requests, `rows` at a time and each under a new seed, until the log e-value is `enough`."""
    for start in range(0, len(requests), rows):
        batch = [replace(request, seed=chance.randrange(2**63)) for request in requests[start : start + rows]]
        for answer in serve(decoder, batch, PATIENCE):
            leans.see(answer)
        for arm in leans.arms.values():
            arm.mark()
        if leans.log_e >= enough:
            return


def case(lean: str, on: Arm, off: Arm | None, alpha: float, wanted: float, more: Mapping[str, object]) -> Case:
    """The evidence about one lean; the states of its bets are all that a verdict needs."""
    return {
        "label": f"lean {lean}",
        "on": to_dict(on.plain),
        "up": to_dict(on.up),
        "down": to_dict(on.down),
        "off": to_dict(off.plain) if off is not None else None,
        "trajectory": on.trajectory,
        "slack": on.slack / max(on.plain.requests, 1),
        "alpha": alpha,
        "wanted": wanted,
    } | dict(more)
