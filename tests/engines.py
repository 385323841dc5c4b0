"""Engines of the optimised decoder on the nano checkpoints, and everything that they say about a request."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from specqual import fixtures
from specqual.contract import CompactLaw, Proposal, Request, Script, ScriptContext, Setup, State, Tokens
from specqual.decoder import Engine, make

TARGETS = ("dense", "hybrid", "window")
DRAFTERS = ("dflash", "dflash2", "selector", "conv", "markov")
Said = tuple[tuple[tuple[int, float], ...], ...]
"""For each sample, its tokens with their log-probabilities: equal ones came from equal logits, bit for bit."""


def engine(target: str, drafter: str | None = None, **changes: object) -> Engine:
    """A fresh engine for a nano target and one of its drafters."""
    draft = None if drafter is None else fixtures.path(f"nano/{target}-{drafter}")
    return make(Setup(target=fixtures.path(f"nano/{target}"), draft=draft, **changes))


@lru_cache(maxsize=32)
def kept(target: str, drafter: str | None = None, dtype: str = "float32") -> Engine:
    """The same, made once."""
    return engine(target, drafter, dtype=dtype)


def greedy(prompt: Sequence[int], max_tokens: int, **changes: object) -> Request:
    return Request(prompt=tuple(prompt), max_tokens=max_tokens, ignore_eos=True, logprobs=0, **changes)


UNEQUAL = tuple(greedy([1 + (7 * i + j * j) % 94 for j in range(1 + 11 * i)], 14 - 2 * i) for i in range(4))


def said(decoder: Engine, requests: Sequence[Request], between: Callable[[int], None] | None = None) -> list[Said]:
    """Everything that comes back for requests submitted together; `between(tick)` runs after every tick."""
    ids = [decoder.submit(request) for request in requests]
    found = {request_id: [[] for _ in range(r.n)] for request_id, r in zip(ids, requests, strict=True)}
    open_, tick = set(ids), 0
    while open_:
        for event in decoder.step():
            if not isinstance(event, Tokens):
                open_.discard(event.request_id)
            elif event.request_id in found:
                assert event.logprobs is not None
                pairs = [(token, law.token) for token, law in zip(event.ids, event.logprobs, strict=True)]
                found[event.request_id][event.sample] += pairs
        if between is not None:
            between(tick)
        tick += 1
        assert tick < 1000
    return [tuple(tuple(sample) for sample in found[request_id]) for request_id in ids]


def next_id(decoder: Engine) -> int:
    """The id of the next request, as long as all ended ones are remembered."""
    return len(decoder._live) + len(decoder._ended)


def alone(decoder: Engine, requests: Sequence[Request]) -> list[Said]:
    return [said(decoder, [request])[0] for request in requests]


def right_but(known: Sequence[int], first: int, accept: Callable[[int], int], wrong: int = 3) -> Script:
    """A drafter that knows the output behind a prompt of `first` tokens, right in the first `accept(round)` drafts."""

    def draft(context: ScriptContext) -> Proposal:
        start, right = len(context.tokens) - first, accept(context.round_index)
        drafts = list(known[start : start + context.max_draft])
        for place in range(right, len(drafts)):
            drafts[place] = (drafts[place] + wrong) % 95
        laws: tuple[CompactLaw | None, ...] = (None,) * len(drafts)
        return Proposal(tuple(drafts), laws)

    return draft


def differing(one: State, other: State) -> list[str]:
    """The names of tensors that are not bitwise equal, of positions that differ, and `length` if that does."""
    names = [] if one.length == other.length else ["length"]
    names += sorted(one.tensors.keys() ^ other.tensors.keys())
    shared = one.tensors.keys() & other.tensors.keys()
    names += [name for name in sorted(shared) if not one.tensors[name].equal(other.tensors[name])]
    return names + [name for name in sorted(shared) if one.positions.get(name) != other.positions.get(name)]
