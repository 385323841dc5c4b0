"""Waves: requests come and go so that batches grow, shrink and change their shape; each is compared with itself alone.

Told and shrunk as histories are, but looked at from outside only, so that a decoder needs nothing optional for them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from specqual.contract import Proposal, Refused, Request, Round, Schedulable, ScriptContext, Scripted, Tokens, Traced

from .campaign import allowed
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
Hazards = list[tuple[str, int]]  # by name, with how often each must have occurred


@dataclass
class Served:
    """One request: what it said and when, its rounds as far as there is a trace, and the step in which it ended."""

    request: Request
    request_id: int
    label: str
    samples: list[list[int]]
    ticks: list[int] = field(default_factory=list)
    rounds: tuple[Round, ...] = ()
    ended: int | None = None


@dataclass
class Waves:
    """Plays steps on one decoder. Steps that it does not offer (a bucket, a draft length, a script) are left out."""

    lab: Lab
    decoder: Any
    cast: Sequence[Request]
    served: list[Served] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    own: bool = True  # drafts came from the configured drafter at its own length, all the time
    ticks: int = 0

    def play(self, steps: Steps) -> None:
        for place, step in enumerate(steps):
            getattr(self, step.verb)(step.who if step.verb == "submit" else step.amount, place)
        self.drain(0, len(steps) - 1)
        self.tally()

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
        known = {one.request_id: one for one in self.served}
        for event in guarded("step", self.decoder.step):
            one = known.get(event.request_id)
            if one is None:
                raise DecoderError(f"an event names request {event.request_id}, which was not submitted here")
            if isinstance(event, Refused):
                raise NotOffered(f"a request of {len(one.request.prompt)} tokens was refused: {event.error}")
            if isinstance(event, Tokens):
                one.samples[event.sample].extend(int(token) for token in event.ids)
                one.ticks.append(self.ticks)
            else:
                one.ended = place
                if isinstance(self.decoder, Traced):
                    one.rounds = guarded("rounds", lambda one=one: tuple(self.decoder.rounds(one.request_id)))
        self.ticks += 1

    def tally(self) -> None:
        """Count the hazards that occurred: batches by their size, and what rounds tell of drafts and buckets.

        A step of a Schedulable decoder is one tick, so that those of whom tokens came in it were served in it. Else a
        request counts from its first tokens to its last.
        """
        if isinstance(self.decoder, Schedulable):
            served = [one.ticks for one in self.served]
        else:
            served = [list(range(one.ticks[0], one.ticks[-1] + 1)) if one.ticks else [] for one in self.served]
        sizes = Counter(tick for ticks in served for tick in set(ticks))
        batches = [sizes[tick] for tick in range(self.ticks)]
        self.counts.update(f"ticks with {size} requests" for size in batches)
        changes = sum(one != other and min(one, other) > 0 for one, other in pairwise(batches))
        self.counts["batches that grew or shrank"] += changes
        grown = [size for one, other in pairwise((0, *batches)) for size in range(one, other)]
        self.counts.update(f"batches grown past {size} requests" for size in grown)
        for one in self.served:
            lengths, buckets = ([len(r.proposals) for r in one.rounds], [r.policy.get("bucket") for r in one.rounds])
            self.counts.update(f"rounds of {length} drafts" for length in lengths)
            self.counts["rounds with drafts"] += sum(length > 0 for length in lengths)
            self.counts["rounds in a bucket"] += sum(size is not None for size in buckets)
            self.counts["rounds in another bucket than the last"] += sum(a != b for a, b in pairwise(buckets))

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
                    sides = {"expected": tale(alone.rounds or (), sample), "actual": tale(one.rounds, sample)}
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


def guards_of(lab: Lab, hazards: Hazards, counts: Counter[str]) -> list[Guard]:
    """Hazards as they occurred; "rounds" of any kind are seen where there is a trace, and nowhere else."""
    return [
        Guard(
            hazard, None if hazard.startswith("rounds") and not isinstance(lab.decoder, Traced) else counts[hazard], n
        )
        for hazard, n in hazards
    ]


def evidence_of(lab: Lab, scenes: Iterable[Scene], hazards: Hazards) -> Evidence:
    """What waves say; the first scene that fails is shrunk and ends them. The hazards must have occurred in them."""
    cases, counts = list[Case](), Counter[str]()
    for drawn, cast in scenes:
        steps = allowed(lab, drawn)
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
    return Evidence("values", cases, guards_of(lab, hazards, counts), dict(sorted(counts.items())))
