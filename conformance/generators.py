"""Requests to examine a decoder with: prompts from text where the target has a tokenizer, else drawn ids."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from specqual.contract import Request, Sampling
from specqual.reference.text import Text

if TYPE_CHECKING:
    from .lab import Lab

T = TypeVar("T")
TEXT = '''def merge(left, right):
    """Return one sorted list from two sorted lists."""
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    return result + left[i:] + right[j:]


class Queue:
    """A bounded queue; put() raises ValueError when it is full."""

    def __init__(self, size=16):
        self.size = size
        self.items = []

    def put(self, item):
        if len(self.items) >= self.size:
            raise ValueError("queue is full")
        self.items.append(item)

    def get(self, default=None):
        return self.items.pop(0) if self.items else default


import os
import sys

def main(argv=None):
    for name in argv or sys.argv[1:]:
        with open(os.path.join(".", name), encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                print(number, line.rstrip())

if __name__ == "__main__":
    main()
'''
PAGE, CHUNK = 16, 64  # tokens; the edges that engines like, and that lengths are drawn around
LENGTHS = (17, 1, 33, 2, 9, 3, 5)
FARTHEST = 160  # tokens of the longest sliding window that prompts are made to pass


def usable(lab: "Lab") -> list[int]:
    """Ids that may stand in a prompt without ending it."""
    limits = lab.claims.limits
    return [token for token in range(limits.vocab_size) if token not in limits.eos_ids]


def edges(lab: "Lab") -> list[int]:
    """Lengths at which something begins anew: a page, a chunk, and where the sliding window is passed."""
    window = lab.window
    return sorted({PAGE, CHUNK, *((window,) if window is not None and window <= FARTHEST else ())})


def sizes(lab: "Lab", length: int, tokens: int) -> tuple[int, int]:
    """Lengths of a prompt and its output, cut to the context and to where the features of this run end."""
    limits = [lab.claims.limits.max_context - 1]
    limits += [] if lab.has("page-edges") else [PAGE - 1]
    limits += [] if lab.has("chunk-edges") else [CHUNK - 1]
    limits += [] if lab.has("windows") or lab.window is None else [lab.window]
    tokens = min(tokens, max(1, min(limits) - 3))
    return max(1, min(length, min(limits) - tokens)), tokens


def prompt(lab: "Lab", chance: Random, length: int) -> tuple[int, ...]:
    """A prompt of `length` tokens: a piece of program text if the target has a tokenizer, else drawn ids."""
    return piece(lab.text, usable(lab), range(lab.claims.limits.vocab_size), chance, length)


def piece(text: Text | None, drawn: Sequence[int], vocabulary: range, chance: Random, length: int) -> tuple[int, ...]:
    """A piece of program text, filled up with ids out of `drawn`; these alone where there is no tokenizer."""
    if text is None:
        return tuple(chance.choices(drawn, k=length))
    ids = tuple(token for token in text.encode(TEXT) if token in vocabulary)
    start = chance.randrange(max(1, len(ids) - length + 1))
    found = ids[start : start + length]
    return found + tuple(chance.choices(drawn, k=length - len(found)))


def sequences(
    text: Text | None, drawn: Sequence[int], vocabulary: range, chance: Random, count: int, length: int
) -> list[tuple[int, ...]]:
    """Tokens to measure rounding on: pieces as above, every fourth one drawn from the whole vocabulary."""
    return [
        piece(text, drawn, vocabulary, chance, length) if i % 4 else tuple(chance.choices(vocabulary, k=length))
        for i in range(count)
    ]


def greedy_requests(lab: "Lab", clause: str, count: int, tokens: int, *, far: bool = False) -> list[Request]:
    """Greedy requests of many prompt lengths, if `far` with one beyond the sliding window; they run on past the end of
    sequence where that can be asked for."""
    chance = lab.random(clause)
    lengths = (LENGTHS * count)[:count]
    if far and lab.window is not None and lab.window <= FARTHEST:
        lengths = (*lengths[1:], lab.window + 5)
    found = [sizes(lab, length, tokens) for length in lengths]
    on = lab.honours("ignore_eos")
    return [Request(prompt=prompt(lab, chance, size), max_tokens=budget, ignore_eos=on) for size, budget in found]


def laws(lab: "Lab", table: Sequence[Mapping[str, Any]]) -> list[Sampling]:
    """The sampling parameters of a table, as far as they are honoured and the features of this run go."""
    found = []
    for parameters in table:
        drawn = dict(parameters) if lab.has("filters") else {"temperature": parameters["temperature"]}
        drawn |= {} if lab.has("temperatures") else {"temperature": 1.0}
        if lab.honours(*drawn):
            found.append(Sampling(**drawn))
    return list(dict.fromkeys(found))


def basic_requests(lab: "Lab") -> list[Request]:
    """The greedy requests that several clauses look at, each from its own side."""
    return greedy_requests(lab, "GE-1", lab.effort.prompts, lab.effort.tokens, far=True)


def smallest(strategy: st.SearchStrategy[T], fails: Callable[[T], bool], examples: int, chance: Random) -> T | None:
    """The smallest drawn example that fails, as Hypothesis shrinks it, or None; the same chance finds the same one."""
    limits = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    try:
        found: T = find(strategy, fails, settings=limits, random=chance)
    except NoSuchExample:
        return None
    return found


@st.composite
def requests(draw: Any, lab: "Lab", longest_prompt: int, longest_output: int) -> Request:
    """Any greedy request; shrinks to one token of the lowest id and one token of output."""
    tokens = st.sampled_from(usable(lab))
    ids = draw(st.lists(tokens, min_size=1, max_size=longest_prompt))
    return Request(prompt=tuple(ids), max_tokens=draw(st.integers(1, longest_output)))
