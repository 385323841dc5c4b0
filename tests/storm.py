"""A storm of requests in a pool that hardly holds them: `python -m tests.storm --requests 5000` prints what came of it.

Greedy and sampled, one sample or two, stop ids, shared beginnings, about a fifth cancelled on its way, under a
commit lag that comes and goes. Everything is seen through the contract alone. The exit status is 1 if a request says
anything but what it says to an undisturbed decoder of the same make, or anything is not given back.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, takewhile
from random import Random
from time import perf_counter
from typing import Any

import torch

from specqual import fixtures
from specqual.contract import Event, FinishReason, Request, Sampling, Setup, State, Tokens
from specqual.decoder import make

LIVE, ASKED = 8, 12  # samples that are in, and requests that are under way, at the same time
SLACK = 1.1  # of the pool, over what so many samples need
LENGTHS = (1, 2, 15, 16, 17, 40, 63, 64, 65, 90)
WARM = (Sampling(temperature=1.0), Sampling(temperature=0.8, top_k=12), Sampling(temperature=1.1, top_p=0.9))
PAGE = 16  # positions
Said = tuple[tuple[tuple[int, float | None], ...], ...]
"""Tokens of each sample, with log-probabilities where they were asked for."""


def drawn(chance: Random, count: int, vocab_size: int) -> Iterator[Request]:
    """Random requests; every second one shares its beginning with others."""
    stems = [tuple(chance.choices(range(1, vocab_size - 1), k=max(LENGTHS))) for _ in range(4)]
    for seed in range(count):
        length = chance.choice(LENGTHS)
        ids = tuple(chance.choices(range(1, vocab_size - 1), k=length))
        if chance.random() < 0.5:
            ids = (*chance.choice(stems)[:length], *ids[: chance.randint(0, 5)])
        yield Request(
            prompt=ids,
            max_tokens=chance.randint(1, 14),
            sampling=chance.choice((Sampling(), *WARM)),
            seed=seed,
            n=chance.choice((1, 1, 2)),
            ignore_eos=chance.random() < 0.8,
            stop_ids=tuple(chance.choices(range(vocab_size), k=chance.choice((0, 0, 4)))),
            logprobs=0,
        )


@dataclass
class Course:
    """One request on its way: what it has said, and the tick at which it is to be cancelled, if it is."""

    request: Request
    cancel_at: int | None
    samples: list[list[tuple[int, float | None]]] = field(default_factory=list)
    reasons: tuple[FinishReason, ...] | None = None

    def hear(self, event: Event) -> None:
        assert self.reasons is None, "something was said behind the final event"
        if isinstance(event, Tokens):
            laws = [None] * len(event.ids) if event.logprobs is None else [law.token for law in event.logprobs]
            self.samples[event.sample] += zip(event.ids, laws, strict=True)
        else:
            self.reasons = event.reasons  # a refused one has none, and fails here

    @property
    def said(self) -> Said:
        return tuple(map(tuple, self.samples))


def served(decoder: Any, request: Request) -> Course:
    """A request served alone."""
    course = Course(request, None, [[] for _ in range(request.n)])
    decoder.submit(request)
    while course.reasons is None:
        for event in decoder.step():
            course.hear(event)
    return course


def needed(decoder: Any, request: Request) -> tuple[int, int]:
    """The most pages that a request of one sample holds, which runs to its length, and in how many streams of rows."""
    free, request_id, most, streams = decoder.resources()["pages"], decoder.submit(request), 0, 0
    while any(isinstance(event, Tokens) for event in decoder.step()):
        held = free - decoder.resources()["pages"]
        if held:
            streams = sum(name.endswith(".key") for name in decoder.inspect(request_id).tensors)
        most = max(most, held)
    return most, streams


def common(one: Request, other: Request) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.prompt, other.prompt, strict=False)))


def owned_once(states: Sequence[tuple[Request, State]], held: int, streams: int) -> bool:
    """Whether every page in use belongs to a sample, and to two only as far as their prompts begin alike, in each of so
    many streams of rows."""
    slots = [state.slot for _, state in states if state.slot is not None]
    for (one, mine), (other, theirs) in combinations(states, 2):
        if len(set(mine.pages) & set(theirs.pages)) > streams * -(-common(one, other) // PAGE):
            return False
    return len(set(slots)) == len(slots) and len({page for _, state in states for page in state.pages}) == held


@dataclass
class Storm:
    """A decoder under load; `looks` counts how often the owners of all pages were looked at."""

    decoder: Any
    chance: Random
    streams: int
    courses: dict[int, Course] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    tick: int = 0
    looks: int = 0
    strays: int = 0

    def run(self, requests: Iterator[Request]) -> None:
        free = self.decoder.resources()["pages"]
        waiting = list(requests)[::-1]
        while waiting or self.live:
            while waiting and len(self.live) < ASKED:
                self.submit(waiting.pop())
            for request_id in [i for i in self.live if self.courses[i].cancel_at == self.tick]:
                self.decoder.cancel(request_id)
            if self.chance.random() < 0.1:
                self.decoder.schedule(lag=self.chance.randint(0, 1), chunk=self.chance.choice((16, 48, 256)))
            self.step()
            if self.tick % 10 == 0:
                self.look(free)
        self.step()

    def submit(self, request: Request) -> None:
        # some of those to be cancelled will have ended by then
        cancel_at = self.tick + self.chance.randint(0, 12) if self.chance.random() < 0.26 else None
        request_id = self.decoder.submit(request)
        self.courses[request_id] = Course(request, cancel_at, [[] for _ in range(request.n)])
        self.live.add(request_id)

    def step(self) -> None:
        for event in self.decoder.step():
            self.courses[event.request_id].hear(event)
            if not isinstance(event, Tokens):
                self.live.discard(event.request_id)
        self.tick += 1

    def look(self, free: int) -> None:
        states = list[tuple[Request, State]]()
        for request_id in self.live:
            request = self.courses[request_id].request
            for sample in range(request.n):
                try:
                    states.append((request, self.decoder.inspect(request_id, sample)))
                except KeyError:  # it waits, or it has ended
                    continue
        self.looks += 1
        self.strays += not owned_once(states, free - self.decoder.resources()["pages"], self.streams)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a storm; `differing` counts the requests that said something else than alone."""

    requests: int
    cancelled: int
    differing: int
    strays: int
    looks: int
    baseline: bool
    tokens: int
    ticks: int
    pages: int
    seconds: float

    @property
    def clean(self) -> bool:
        return self.baseline and not self.differing and not self.strays

    def __str__(self) -> str:
        back = "everything back to baseline" if self.baseline else "NOT BACK TO BASELINE"
        return (
            f"{self.requests} requests, {self.cancelled} cancelled, {self.tokens} tokens in {self.ticks} ticks; "
            f"{self.differing} differ from their solo runs; pool of {self.pages} pages, {back}; "
            f"{self.strays} of {self.looks} looks found a page with two owners or none; {self.seconds:.0f} s"
        )


def storm(setup: Setup, count: int, seed: int = 0) -> Outcome:
    """Run `count` random requests through one decoder, and each of them through another one, alone."""
    started, chance = perf_counter(), Random(seed)
    solo = make(replace(setup, options={"prefixes": 0}))
    widest = Request(prompt=(1,) * (max(LENGTHS) + 5), max_tokens=14, ignore_eos=True, logprobs=0)
    one, streams = needed(solo, widest)
    pages = int(SLACK * LIVE * one)
    decoder = make(replace(setup, options={"samples": LIVE, "pages": pages, "prefixes": 24}))
    before = dict(decoder.resources())
    found = Storm(decoder, chance, streams)
    found.run(drawn(chance, count, decoder.claims.limits.vocab_size))
    differing = cancelled = 0
    for course in found.courses.values():
        alone, ended = served(solo, course.request), course.reasons or ()
        whole = [reason is not FinishReason.CANCELLED for reason in ended]
        cancelled += not all(whole)
        same = [
            mine == (theirs if done else theirs[: len(mine)])
            for mine, theirs, done in zip(course.said, alone.said, whole, strict=True)
        ]
        reasons = [mine is theirs for mine, theirs, done in zip(ended, alone.reasons or (), whole, strict=True) if done]
        differing += not all(same + reasons)
    return Outcome(
        len(found.courses),
        cancelled,
        differing,
        found.strays,
        found.looks,
        decoder.resources() == before,
        sum(len(sample) for course in found.courses.values() for sample in course.samples),
        found.tick,
        pages,
        perf_counter() - started,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--requests", type=int, default=5000, help="how many (default: 5000)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument("--target", default="nano/hybrid", help="fixture name (default: nano/hybrid)")
    parser.add_argument("--draft", default="nano/hybrid-dflash2", help="fixture name (default: nano/hybrid-dflash2)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    setup = Setup(target=fixtures.path(options.target), draft=fixtures.path(options.draft))
    outcome = storm(setup, options.requests, options.seed)
    print(outcome)
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
