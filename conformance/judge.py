"""The judge: what the reference says about each emitted token under its own prefix."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from specqual.contract import Request
from specqual.reference.forward import Forward, Target
from specqual.reference.sampling import Law, filtered, order, processed
from specqual.reference.target import load_target

from .rounding import Envelope, bound, near_ties, number, summation

REMEMBERED = 64  # forward passes
LOWEST = -1e9  # nats; stands for impossible


def log_softmax(logits: Law) -> Law:
    """Log-probabilities [V] (nats) of logits [V]; impossible tokens stay at -inf."""
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


@dataclass(frozen=True, slots=True)
class Judged:
    """One output under its own prefixes, one entry per token; nats. `logprob` is None outside the vocabulary."""

    argmax: tuple[int, ...]
    best: tuple[float, ...]
    runner_up: tuple[float, ...]
    logprob: tuple[float | None, ...]


class Judge:
    """Scores outputs with a float64 target; forward passes are remembered by their tokens."""

    def __init__(self, target: Target, directory: Path | None = None) -> None:
        self.target = target
        self.directory = directory
        self._passes: OrderedDict[tuple[int, ...], Forward] = OrderedDict()
        self._envelopes: dict[str, Envelope] = {}
        self._narrow: dict[str, Target] = {}

    @classmethod
    def of(cls, directory: Path) -> "Judge":
        return cls(load_target(directory), directory)

    def forward(self, ids: Sequence[int]) -> Forward:
        """The reference's pass over these tokens, remembered."""
        key = tuple(ids)
        found = self._passes.pop(key, None)
        self._passes[key] = found if found is not None else self.target.forward(key)
        if len(self._passes) > REMEMBERED:
            self._passes.popitem(last=False)
        return self._passes[key]

    def forget(self) -> None:
        """Drop all passes that are remembered."""
        self._passes.clear()

    def _reaching(self, ids: Sequence[int]) -> Forward:
        """A pass whose first tokens are these: the rows of a longer one are the same, because no token looks ahead."""
        key = tuple(ids)
        longer = next((known for known in self._passes if known[: len(key)] == key), key)
        return self.forward(longer)

    def logits(self, ids: Sequence[int]) -> Law:
        """Logits [T, V] in float64; row t is the law after token t."""
        logits: Law = self._reaching(ids).logits[: len(ids)].double().cpu().numpy()
        return logits

    def hidden(self, ids: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Hidden states of these tokens: N + 1 of [T, H]."""
        return tuple(states[: len(ids)] for states in self._reaching(ids).hidden)

    def rows(self, request: Request, output: Sequence[int]) -> list[Law]:
        """The processed logits [V] that each output token was chosen from, steps 1 to 3 of Sampling applied."""
        known = list(output)
        legal = next((i for i, token in enumerate(known) if not 0 <= token < self.target.vocab_size), len(known))
        count = min(len(known), legal + 1)  # nothing is defined behind an illegal token
        if count == 0:
            return []
        raw = self.logits((*request.prompt, *known[: count - 1]))[len(request.prompt) - 1 :]
        rows = []
        for place in range(count):
            forbidden = self.target.eos_ids if place < request.min_tokens else ()
            rows.append(processed(raw[place], request.sampling, request.prompt, known[:place], forbidden))
        return rows

    def judge(self, request: Request, output: Sequence[int]) -> Judged:
        """Best, runner-up and own log-probability of every token; ends at the first id outside the vocabulary."""
        argmax, best, second, own = [], [], [], []
        for token, row in zip(output, self.rows(request, output), strict=False):
            logp = log_softmax(row)
            first, runner = order(logp)[:2]
            argmax.append(int(first))
            best.append(float(logp[first]))
            second.append(float(max(logp[runner], LOWEST)))
            legal = 0 <= token < len(logp)
            own.append(float(max(logp[token], LOWEST)) if legal else None)
        return Judged(tuple(argmax), tuple(best), tuple(second), tuple(own))

    def row(self, request: Request, output: Sequence[int]) -> Law:
        """The processed logits [V] of the token behind `output`, steps 1 to 3 of Sampling applied."""
        raw = self.logits((*request.prompt, *output))[-1]
        forbidden = self.target.eos_ids if len(output) < request.min_tokens else ()
        return processed(raw, request.sampling, request.prompt, output, forbidden)

    def law(self, request: Request, output: Sequence[int]) -> Law:
        """The law p [V] of the token behind `output`, all steps of Sampling applied."""
        return filtered(self.row(request, output), request.sampling)

    def top(self, request: Request, output: Sequence[int], count: int = 5) -> list[tuple[int, float]]:
        """The most probable next tokens with their log-probabilities, after processing."""
        logp = log_softmax(self.row(request, output))
        return [(int(i), float(max(logp[i], LOWEST))) for i in order(logp)[:count]]

    def rounding(
        self, dtype: str, sequences: Callable[[], Iterable[Sequence[int]]], alpha: Callable[[], float]
    ) -> Envelope:
        """How far evaluation in `dtype` moves near ties of this target, measured over the sequences once per dtype.

        A table has no arithmetic but its logits, so those are rounded. Nothing is narrower than one rounding of them.
        """
        if dtype not in self._envelopes:
            narrow, moved, largest = self.narrow(dtype), list[Law](), 0.0
            for ids in sequences() if narrow is not None else ():
                exact, rounded = self.logits(ids), narrow.forward(tuple(ids)).logits.to(number(dtype)).double().numpy()
                moved.append(np.concatenate([near_ties(*rows) for rows in zip(exact, rounded, strict=True)]))
                largest = max(largest, float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)))
            found = number(dtype)
            floor = 0.0 if found is None else summation(found) * torch.finfo(found).eps * largest
            self._envelopes[dtype] = bound(moved, dtype, alpha(), floor)
        return self._envelopes[dtype]

    def narrow(self, dtype: str) -> Target | None:
        """This target evaluated in a dtype that rounds, loaded once; None for one that does not."""
        found = number(dtype)
        if found is None or self.directory is None:
            return None
        if dtype not in self._narrow:
            self._narrow[dtype] = load_target(self.directory, dtype=found)
        return self._narrow[dtype]
