"""Greedy requests under a scheduler that gets no rest: batches come and go, sizes change, requests are taken out."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from specqual import fixtures
from specqual.contract import FinishReason, Request, Tokens

from ..storm import Course

CROWD = 15  # requests at once, at most
PROMPTS = (1, 2, 15, 16, 17, 33, 64, 65, 128, 257, 300)
CHUNKS, BUCKETS = (16, 48, 64, 256), (1, 8, 32, 96)
HELD = 6  # ticks, at most, that a preempted request waits


@dataclass
class Seen:
    """What has happened so far; `hazards` and `batches` count ticks and events by what they were."""

    tokens: int = 0
    requests: int = 0
    blocks: int = 0
    drafted: int = 0
    accepted: int = 0
    hazards: Counter[str] = field(default_factory=Counter)
    batches: Counter[int] = field(default_factory=Counter)
    difference: dict[str, Any] | None = None
    seconds: float = 0.0

    def missing(self, tokens: int) -> list[str]:
        """What was to happen and did not."""
        wanted = ["cancelled", "preempted", "lag 0", "lag 1", *(f"chunk {c}" for c in CHUNKS)]
        wanted += [f"bucket {b}" for b in BUCKETS]
        found = [name for name in wanted if not self.hazards[name]]
        found += [f"batches of {size}" for size in range(1, CROWD + 1) if not self.batches[size]]
        found += [name for name, count in self.drafts.items() if not count]
        return found + ([f"{tokens} tokens"] if self.tokens < tokens else [])

    @property
    def drafts(self) -> dict[str, int]:
        return {"accepted drafts": self.accepted, "rejected drafts": self.drafted - self.accepted}

    def __str__(self) -> str:
        hazards = self.hazards
        return (
            f"{self.tokens} tokens of {self.requests} requests in {self.blocks} blocks, batches of "
            f"{min(self.batches, default=0)} to {max(self.batches, default=0)}, {hazards['cancelled']} cancelled, "
            f"{hazards['preempted']} preemptions, {self.accepted} of {self.drafted} drafts accepted, "
            f"{self.seconds:.0f} s"
        )


@cache
def windows() -> tuple[tuple[int, ...], ...]:
    """Held-out text as ids of the small checkpoints."""
    kinds = json.loads((fixtures.ROOT / "small" / "heldout.json").read_text())["windows"]
    return tuple(tuple(window) for found in kinds.values() for window in found)


def drawn(chance: Random, tokens: int, vocab_size: int, prompt: int, longest: int, told: bool) -> list[Request]:
    """Greedy requests that may yield so many tokens: held-out text, every fifth one anything; some share beginnings."""
    found, stems, open_ = list[Request](), [chance.choice(windows()) for _ in range(4)], tokens
    while open_ > 0:
        length, window = chance.choice([size for size in PROMPTS if size <= prompt]), chance.choice(windows())
        start = chance.randrange(max(1, len(window) - length))
        ids = chance.choice(stems)[:length] if chance.random() < 0.3 else window[start : start + length]
        if chance.random() < 0.2:
            ids = tuple(chance.choices(range(vocab_size), k=length))
        budget = chance.choice((1, 2, 5, longest // 4, longest // 2, longest))
        found.append(
            Request(
                prompt=tuple(token % vocab_size for token in ids),
                max_tokens=max(1, budget),
                ignore_eos=chance.random() < 0.8,
                stop_ids=tuple(chance.choices(range(vocab_size), k=chance.choice((0, 0, 0, 3)))),
                logprobs=0 if told else None,
            )
        )
        open_ -= budget
    return found


@dataclass
class Gale:
    """A decoder whose scheduler is not left alone for long."""

    decoder: Any
    chance: Random
    seen: Seen
    live: dict[int, Course] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)  # by request, the tick at which it goes on
    tick: int = 0

    def run(self, requests: Sequence[Request]) -> list[tuple[int, Course]]:
        """Serve requests as they come in and go, to their ends or until they are cancelled."""
        waiting, courses, crowd = list(requests)[::-1], list[tuple[int, Course]](), CROWD
        free = self.decoder.resources()["samples"]
        while waiting or self.live:
            if self.chance.random() < 0.08:
                crowd = self.chance.randint(1, CROWD)
            while waiting and len(self.live) < crowd:
                cancel_at = self.tick + self.chance.randint(1, 40) if self.chance.random() < 0.15 else None
                course = Course(waiting.pop(), cancel_at, [[]])
                request_id = self.decoder.submit(course.request)
                self.live[request_id] = course
                courses.append((request_id, course))
            self.disturb()
            ended = 0  # samples that were in when the tick began
            for event in self.decoder.step():
                self.live[event.request_id].hear(event)
                if not isinstance(event, Tokens):
                    course = self.live.pop(event.request_id)
                    ended += course.reasons != (FinishReason.CANCELLED,)
            self.seen.batches[free - self.decoder.resources()["samples"] + ended] += 1
            self.tick += 1
        return courses

    def disturb(self) -> None:
        """Cancel, preempt, resume, and set sizes."""
        chance, hazards = self.chance, self.seen.hazards
        for request_id in [i for i, course in self.live.items() if course.cancel_at == self.tick]:
            self.decoder.cancel(request_id)
            self.held.pop(request_id, None)
            hazards["cancelled"] += 1
        ready = [i for i, course in self.live.items() if i not in self.held and course.cancel_at != self.tick]
        if ready and chance.random() < 0.05:
            request_id = chance.choice(ready)
            self.decoder.preempt(request_id)
            self.held[request_id] = self.tick + chance.randint(1, HELD)
            hazards["preempted"] += 1
        for request_id in [i for i, until in self.held.items() if until == self.tick]:
            self.decoder.resume(request_id)
            del self.held[request_id]
        if chance.random() < 0.15:
            most = self.decoder.claims.limits.max_draft
            sizes = {"lag": chance.randint(0, 1), "chunk": chance.choice(CHUNKS), "bucket": chance.choice(BUCKETS)}
            sizes["draft"] = chance.choice((most, most, chance.randint(0, most)))
            self.decoder.schedule(**sizes)
            hazards.update(f"{name} {size}" for name, size in sizes.items())


def calm(decoder: Any, requests: Sequence[Request]) -> list[Course]:
    """Serve all requests, as many at a time as the decoder takes, and leave its scheduler alone."""
    courses = {decoder.submit(request): Course(request, None, [[]]) for request in requests}
    while any(course.reasons is None for course in courses.values()):
        for event in decoder.step():
            courses[event.request_id].hear(event)
    return list(courses.values())
