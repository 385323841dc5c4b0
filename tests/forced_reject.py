"""Thousands of rejected drafts leave no trace: `python -m tests.forced_reject --tokens 2000` prints what was compared.

A script that knows the output and is always wrong drafts K tokens in every round. Output, log-probabilities and state,
the drafter's context too, must be bitwise those of the same decoder drafting nothing. The exit status is 1 if not.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from specqual import fixtures
from specqual.contract import Script, Setup, State, Tokens
from specqual.decoder import make

from .engines import differing, greedy, right_but

PROMPT = tuple(range(20, 40))
Told = tuple[tuple[int, float], ...]


def decoded(setup: Setup, tokens: int, script: Script | None) -> tuple[Told, State, int, int]:
    """Tokens with log-probabilities, the state behind them, and how many drafts were made and accepted."""
    decoder = make(setup)
    if script is None:
        decoder.schedule(draft=0)
    decoder.script(script)
    request_id, told = decoder.submit(greedy(PROMPT, tokens + 1)), list[tuple[int, float]]()
    while len(told) < tokens:
        for event in decoder.step():
            assert isinstance(event, Tokens) and event.logprobs is not None
            told += [(token, law.token) for token, law in zip(event.ids, event.logprobs, strict=True)]
    rounds = decoder.rounds(request_id)
    made, accepted = sum(len(r.proposals) for r in rounds), sum(r.accepted for r in rounds)
    return tuple(told), decoder.inspect(request_id), made, accepted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run with wrong drafts and one without have in common."""

    tokens: int
    drafted: int
    accepted: int
    tensors: int
    wrong: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        return not self.wrong and not self.accepted and self.drafted > 0

    def __str__(self) -> str:
        said = f"DIFFER: {', '.join(self.wrong)}" if self.wrong else f"output and {self.tensors} tensors bitwise equal"
        return f"{self.tokens} tokens, {self.drafted} drafts, {self.accepted} accepted; {said}; {self.seconds:.0f} s"


def compare(setup: Setup, tokens: int) -> Outcome:
    """Plain decoding against decoding with nothing but wrong drafts."""
    started = perf_counter()
    plain, expected, _, _ = decoded(setup, tokens, None)
    wrong = right_but([token for token, _ in plain], len(PROMPT), lambda _: 0)
    told, state, drafted, accepted = decoded(setup, tokens, wrong)
    names = [*(["output"] if told != plain else []), *differing(state, expected)]
    return Outcome(tokens, drafted, accepted, len(state.tensors), tuple(names), perf_counter() - started)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.forced_reject", description=__doc__)
    parser.add_argument("--tokens", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--target", default="small/hybrid", help="fixture name (default: small/hybrid)")
    parser.add_argument("--draft", default="small/hybrid-dflash2", help="whose K (default: small/hybrid-dflash2)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    setup = Setup(target=fixtures.path(options.target), draft=fixtures.path(options.draft))
    outcome = compare(setup, options.tokens)
    print(outcome)
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
