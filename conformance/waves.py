"""Waves: requests come and go so that batches grow, shrink and change their shape; each is compared with itself alone.

Told and shrunk as histories are, but looked at from outside only, so that a decoder needs nothing optional for them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specqual.contract import Proposal, Refused, Request, Schedulable, ScriptContext, Scripted, Tokens, Traced

from .compare import tale
from .drive import DecoderError, NotOffered, guarded
from .evidence import Case, Evidence, Guard, decide
from .history import Cast, name, told
from .lab import Lab
from .shrink import Steps, shrink
from .sizes import takes
from .ties import tie_of
from .verdicts import Verdict

PATIENCE = 400  # ticks in which waves must come to their end
Scene = tuple[Steps, Cast]


@dataclass
class Served:
    """One request: what it said, and in which step it ended."""

    request: Request
    request_id: int
    label: str
    samples: list[list[int]]
    ended: int | None = None


@dataclass
class Waves:
    """Plays steps on one decoder. Steps that it does not offer (a bucket, a draft length, a script) are left out."""

    lab: Lab
    decoder: Any
    cast: Sequence[Request]
    served: list[Served] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    live: int = 0  # requests in the last tick
    own: bool = True  # drafts came from the configured drafter at its own length, all the time

    def play(self, steps: Steps) -> None:
        for place, step in enumerate(steps):
            getattr(self, step.verb)(step.who if step.verb == "submit" else step.amount, place)
        self.drain(0, len(steps) - 1)

    def submit(self, who: int, place: int) -> None:
        request = self.cast[who]
        request_id = guarded("submit", lambda: self.decoder.submit(request))
        self.served.append(Served(request, request_id, name(len(self.served)), [[] for _ in range(request.n)]))

    def step(self, ticks: int, place: int) -> None:
        for _ in range(ticks):
            self.tick(place)

    def drain(self, amount: int, place: int) -> None:
        for _ in range(PATIENCE):
            if all(one.ended is not None for one in self.served):
                return
            self.tick(place)
        raise DecoderError(f"requests did not end within {PATIENCE} ticks")

    def bucket(self, rows: int, place: int) -> None:
        if isinstance(self.decoder, Schedulable) and takes(self.decoder, bucket=rows):
            self.counts["buckets set"] += 1

    def draft(self, length: int, place: int) -> None:
        if isinstance(self.decoder, Schedulable) and takes(self.decoder, draft=length):
            self.own = False
            self.counts["draft lengths set"] += 1

    def alternate(self, amount: int, place: int) -> None:
        """Every second round of a request drafts nothing, those of neighbours in turn."""
        if isinstance(self.decoder, Scripted):
            self.own = False
            guarded("script", lambda: self.decoder.script(self._alternating))

    def _alternating(self, context: ScriptContext) -> Proposal:
        place = next(i for i, one in enumerate(self.served) if one.request_id == context.request_id)
        one = self.served[place]
        if (context.round_index + place) % 2:
            return Proposal.certain(())
        known = self.lab.twin.alone(one.request).samples[context.sample]
        start = len(context.tokens) - len(one.request.prompt)
        self.counts["drafted beside undrafted"] += sum(other.ended is None for other in self.served) > 1
        return Proposal.certain(known[start : start + context.max_draft])

    def tick(self, place: int) -> None:
        live = sum(one.ended is None for one in self.served)
        self.counts[f"ticks with {live} requests"] += 1
        for size in range(self.live, live):
            self.counts[f"batches grown past {size} requests"] += 1
        self.live = live
        known = {one.request_id: one for one in self.served}
        for event in guarded("step", self.decoder.step):
            one = known.get(event.request_id)
            if one is None:
                raise DecoderError(f"an event names request {event.request_id}, which was not submitted here")
            if isinstance(event, Refused):
                raise NotOffered(f"a request of {len(one.request.prompt)} tokens was refused: {event.error}")
            if isinstance(event, Tokens):
                one.samples[event.sample].extend(int(token) for token in event.ids)
            else:
                one.ended = place

    def cases(self, steps: Steps) -> Iterable[tuple[Case, int]]:
        """Every request against itself alone, and the step in which it ended."""
        history, twin, bitwise = told(steps, self.cast, self.lab.longest), self.lab.twin, self.lab.must_repeat
        for one in sorted(self.served, key=lambda one: one.ended or 0):
            if not (one.request.sampling.greedy or (self.own and bitwise)):
                continue
            alone = twin.alone(one.request)
            for sample, said in enumerate(one.samples):
                wanted, what = list(alone.samples[sample]), f"{one.label}, sample {sample}"
                case: Case = {"what": f"{what}: output", "expected": wanted, "actual": said, "history": history}
                yield case | tie_of(self.lab, one.request, wanted, said), one.ended or 0
                if self.own and bitwise and isinstance(self.decoder, Traced):
                    rounds = guarded("rounds", lambda one=one: self.decoder.rounds(one.request_id))
                    sides = {"expected": tale(alone.rounds or (), sample), "actual": tale(rounds, sample)}
                    what = f"{what}: rounds (start, proposals, q, accepted)"
                    yield {"what": what, **sides, "history": history}, one.ended or 0


def ridden(lab: Lab, scene: Scene) -> tuple[list[Case], int | None, Counter[str]]:
    """Play a scene on a decoder of its own: all cases up to the first wrong one, the step in which that request ended,
    and the hazards that occurred."""
    steps, cast = scene
    with lab.twin.fresh() as decoder:
        waves, cases = Waves(lab, decoder, cast), list[Case]()
        waves.play(steps)
        for case, place in waves.cases(steps):
            cases.append(case)
            if decide({"kind": "values", "cases": [case], "guards": []}).verdict is Verdict.VIOLATED:
                return [case], place, waves.counts
    return cases, None, waves.counts


def evidence_of(lab: Lab, scenes: Iterable[Scene], guards: Sequence[tuple[str, int]]) -> Evidence:
    """What waves say; the first scene that fails is shrunk and ends them. `guards` name hazards, and how often each
    must have occurred."""
    cases, counts = list[Case](), Counter[str]()
    for steps, cast in scenes:
        found, place, seen = ridden(lab, (steps, cast))
        counts += seen
        if place is not None:
            wrong = {steps: found}

            def fails(candidate: Steps, cast: Cast = cast, wrong: dict[Steps, list[Case]] = wrong) -> int | None:
                if not any(step.verb == "submit" for step in candidate):
                    return None
                wrong[candidate], place, _ = ridden(lab, (candidate, cast))
                return place

            small = shrink(steps[: place + 1], fails, lab.effort.shrinks)
            if small not in wrong:
                fails(small)
            return Evidence("values", [case | {"shrunk": f"from {len(steps)} steps"} for case in wrong[small]])
        cases += found
    hazards = [Guard(hazard, counts[hazard], needed) for hazard, needed in guards]
    return Evidence("values", cases, hazards, dict(sorted(counts.items())))
