"""Contexts in which faults of verification show most, and the laws behind their prefixes.

A black box is asked the same few prompts again and again. Which ones decides how soon a bias shows: a correction must
be frequent and free to go wrong, a draft must be free to go wrong too, and enough drafts must be accepted for bonus
tokens. The suite has the drafter's reference, so it can look for such prompts beforehand, without any sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from specqual.contract import DraftFormat, Method, Request, Sampling
from specqual.contract.errors import CheckpointError
from specqual.reference.drafter import DraftContext, load_drafter
from specqual.reference.sampling import Law, order
from specqual.reference.verify import dense, residual

from .bracket import bracket
from .evidence import Case
from .judge import Judge

TINY = "nano/dense"  # the target of those fixtures whose drafters are told by method
TINY_DRAFTS = {
    Method.DFLASH: "nano/dense-dflash",
    Method.DFLASH2: "nano/dense-dflash2",
    Method.DFLASH_SELECTOR: "nano/dense-selector",
    Method.DFLASH_CONV: "nano/dense-conv",
    Method.MARKOV: "nano/dense-markov",
    Method.ASSISTED: "nano/llama",
}
LENGTH = 6  # tokens of a prompt
CELLS = 8  # of the law behind a prefix: the likeliest tokens one by one, the others together
RARE = 0.03  # chance of a prefix below which it is not worth watching
WATCHED = 6  # prefixes of one request, at most

Draft = Callable[[Request, Sequence[int]], Law | None]
"""The law q [V] that the first draft behind a prompt and its output is drawn from; None where nobody knows."""


def drafter_of(judge: Judge, draft: Path | None, draft_format: DraftFormat = DraftFormat.STORED) -> Draft:
    """The configured drafter's own law, as far as the reference can load it."""
    try:
        drafter = load_drafter(draft, judge.target, draft_format=draft_format) if draft is not None else None
    except CheckpointError:
        drafter = None  # a table's, or one of a kind that only the decoder knows

    def q(request: Request, output: Sequence[int]) -> Law | None:
        if drafter is None:
            return None
        ids = (*request.prompt, *output)
        hidden = tuple(states[:-1] for states in judge.hidden(ids))
        drafted = drafter.propose(DraftContext(ids, hidden, judge.target), 1, request.sampling, lambda slot: 0.5)
        return dense(drafted.q[0], np.zeros(judge.target.vocab_size)) if drafted.q else None

    return q


def leverage(p: Law, q: Law | None) -> float:
    """How much a fault of verification can show in a token drawn from p [V] by way of a draft drawn from q [V].

    The chance of an acceptance, of a rejection, and of two draws from the correction's law, and from q, to differ.
    """
    spread = 1 - float(np.square(p).sum())
    if q is None:
        return spread
    accepted = float(np.minimum(p, q).sum())
    free = (1 - float(np.square(law).sum()) for law in (residual(p, q), q))
    return accepted * (1 - accepted) * float(np.prod(list(free))) + 1e-3 * spread


def telling(judge: Judge, q: Draft, sampling: Sampling, chance: Random, count: int, tried: int) -> list[Request]:
    """The requests of greatest leverage among `tried` random prompts, greatest first.

    The first token, which engines draw without a draft, should be nearly certain: then most samples reach one prefix.
    """
    found = []
    usable = [token for token in range(judge.target.vocab_size) if token not in judge.target.eos_ids]
    for _ in range(tried):
        request = Request(prompt=tuple(chance.choices(usable, k=LENGTH)), max_tokens=3, sampling=sampling)
        first = judge.law(request, ())
        token = int(first.argmax())
        ends = token in judge.target.eos_ids
        score = 0.0 if ends else float(first[token]) * leverage(judge.law(request, (token,)), q(request, (token,)))
        found.append((score, request))
    return [request for _, request in sorted(found, key=lambda pair: -pair[0])[:count]]


@dataclass(frozen=True, slots=True)
class Node:
    """The law behind a prefix of an output, in cells: `tokens` one by one, everything else in the last."""

    after: tuple[int, ...]
    tokens: tuple[int, ...]
    p: tuple[float, ...]
    slack: float
    counts: list[int]

    def see(self, output: Sequence[int]) -> None:
        """Count the token of an output that stands behind this prefix."""
        place = len(self.after)
        if tuple(output[:place]) == self.after and len(output) > place:
            token = output[place]
            self.counts[self.tokens.index(token) if token in self.tokens else len(self.tokens)] += 1

    def case(self) -> Case:
        return {"after": self.after, "tokens": self.tokens, "p": self.p, "slack": self.slack, "counts": self.counts}


def nodes(judge: Judge, request: Request, nats: float, depth: int) -> list[Node]:
    """The laws behind the likeliest prefixes of fewer than `depth` tokens, with what rounding by `nats` explains."""
    found, open_ = list[tuple[float, Node]](), [((), 1.0)]
    while open_:
        after, mass = open_.pop()
        given = bracket(judge.row(request, after), request.sampling, nats)
        ids = order(given.law)[: CELLS - 1]
        tokens = tuple(int(token) for token in ids if given.law[token])
        p = tuple(float(given.law[token]) for token in tokens)
        rest = max(0.0, 1.0 - sum(p))
        node = Node(after, tokens, (*p, rest if rest > 1e-12 else 0.0), given.slack, [0] * (len(tokens) + 1))
        found.append((mass, node))
        for token, chance in zip(tokens, p, strict=True):
            if len(after) + 1 < depth and mass * chance >= RARE and token not in judge.target.eos_ids:
                open_.append(((*after, token), mass * chance))
    return [node for _, node in sorted(found, key=lambda pair: -pair[0])[:WATCHED]]
