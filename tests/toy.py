"""A real decoder in forty lines, for tests of the suite: table targets, greedy, one draft of the commonest token.

`make` builds it; options plant one fault each, so that tests see every verdict.
"""

import os
import time

import numpy as np

from specqual.contract import (
    Claims,
    Finished,
    FinishReason,
    Greedy,
    InvalidRequest,
    Limits,
    Method,
    Proposal,
    Round,
    Rule,
    SeedContract,
    Setup,
    Tokens,
    Unsupported,
    Usage,
    validate,
)
from specqual.reference.table import load_table

FAULTS = ("none", "token", "crash", "sleep", "engine", "undrafted", "swallow", "short", "die")


class Toy:
    """Greedy decoding of a table target; a round drafts the token that it guesses, and checks it."""

    def __init__(self, target, drafts: int, fault: str) -> None:
        limits = Limits(target.vocab_size, target.max_context, drafts, eos_ids=target.eos_ids)
        self.claims = Claims(
            engine="toy",
            version="1 <&>",
            rule=Rule.RATIO,
            method=Method.NGRAM if drafts else Method.NONE,
            greedy=Greedy(bitwise=True),
            sampling=frozenset({"ignore_eos"}),
            seed=SeedContract.ALWAYS,
            limits=limits,
            dtype="float64",
        )
        self._target, self._fault = target, fault
        self._queue, self._rounds, self._next = [], {}, 0

    def _best(self, tokens) -> int:
        return int(np.argmax(self._target.law(tokens)))

    def submit(self, request) -> int:
        if self._fault != "swallow" or not request.stop_strings:
            validate(request, self.claims.limits)
        if request.sampling.temperature or request.stop_ids or request.n > 1:
            raise InvalidRequest("temperature", "is not honoured")
        self._next += 1
        self._queue.append((self._next, request))
        return self._next

    def step(self):
        if not self._queue:
            return []
        if self._fault == "crash":
            raise ZeroDivisionError("the toy broke")
        if self._fault == "die":
            os._exit(7)
        if self._fault == "sleep":
            time.sleep(60)
        request_id, request = self._queue.pop(0)
        tokens, rounds, reason = list(request.prompt), [], FinishReason.LENGTH
        while len(tokens) < len(request.prompt) + request.max_tokens and reason is FinishReason.LENGTH:
            room = request.max_tokens - (len(tokens) - len(request.prompt)) - 1
            drafting = self.claims.limits.max_draft and rounds and room > 0 and self._fault != "undrafted"
            best = self._best(tokens)
            proposal = Proposal.certain((max(best - len(tokens) % 2, 0),) if drafting else ())
            span = [best]
            if proposal.tokens == (best,):
                span.append(self._best([*tokens, best]))
            if self._fault == "token" and len(rounds) == 2:
                span = [(best + 1) % self._target.vocab_size]
            accepted = len(span) - 1
            ends = [i for i, token in enumerate(span) if token in self._target.eos_ids and not request.ignore_eos]
            if ends:
                span, reason = span[: ends[0] + 1], FinishReason.STOP
            start = len(tokens) - 1
            rounds.append(Round(request_id, 0, start, tokens[-1], proposal.tokens, proposal.q, accepted, tuple(span)))
            tokens += span
        self._rounds[request_id] = tuple(rounds)
        output = tuple(tokens[len(request.prompt) :])[: 2 if self._fault == "short" else None]
        usage = Usage(len(request.prompt), len(output))
        return [Tokens(request_id, output), Finished(request_id, (reason,), usage)]

    def cancel(self, request_id) -> None:
        raise KeyError(request_id)

    def rounds(self, request_id):
        return self._rounds[request_id]

    def close(self) -> None:
        self._queue.clear()


def make(setup: Setup) -> Toy:
    fault = setup.options.get("fault", "none")
    for name in setup.options:
        if name != "fault":
            raise ValueError(f"{name}: unknown option; there is fault")
    if fault == "engine":
        raise Unsupported("the toy does not do this")
    drafts = 0 if setup.rule is Rule.NONE else 1
    return Toy(load_table(setup.target), drafts, fault)
