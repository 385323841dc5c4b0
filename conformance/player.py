"""Playing a history on a decoder, and writing down everything that can be seen on the way."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specqual.contract import Refused, Request, Tokens

from .drive import DecoderError, NotOffered, guarded
from .generators import usable
from .history import Step, name
from .lab import Lab
from .looks import latest, noted
from .ownership import Books
from .played import Played, Unlike
from .prompter import Prompter
from .twin import Twin, committed, look

PATIENCE = 400  # ticks in which a history must come to its end


@dataclass
class Player:
    """Plays one history on one decoder.

    `unlike` collects what breaks a rule of silence, order or ownership; what needs the twin is compared afterwards.
    """

    lab: Lab
    twin: Twin
    decoder: Any
    cast: Sequence[Request]
    played: list[Played] = field(default_factory=list)
    unlike: list[Unlike] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0
    largest: float = 0.0  # difference of a number of a state from the twin's
    place: int = 0
    lag: int = 0
    size: int | None = None  # chunk; None where none is taken
    drafted: set[bool] = field(default_factory=set)  # whether the rounds committed in the last tick had drafts
    own: bool = True  # drafts came from the configured drafter at its own length, all the time
    _ticks: int = 0

    def __post_init__(self) -> None:
        self.books, self.prompter = Books(self), Prompter(self.lab, self.twin, self.played)
        if self.twin.sizes.chunks:
            self.size = self.twin.sizes.chunks[0]
            guarded("schedule", lambda: self.decoder.schedule(chunk=self.size))

    def play(self, steps: Sequence[Step]) -> None:
        """Every step, and then whatever brings all requests to their end."""
        for self.place, step in enumerate(steps):
            getattr(self, step.verb)(step)
        self.drain(Step("drain"))
        self.follow(self.played)
        for one in self.played:
            self.counts["served beside another"] += one.beside
            one.rounds = guarded("rounds", lambda one=one: tuple(self.decoder.rounds(one.request_id)))
        self.books.close()

    def expect(self, chapter: str, what: str, expected: Any, actual: Any) -> None:
        """Note it if something that can be judged at once is not as it must be."""
        self.comparisons += 1
        if expected != actual:
            self.unlike.append(Unlike(chapter, self.place, what, expected, actual))

    # The rules

    def submit(self, step: Step) -> None:
        request = self.cast[step.who]
        if not self.lab.has("prefixes"):
            others = {other.request.prompt[0] for other in self.played}
            first = next((token for token in usable(self.lab) if token not in others), request.prompt[0])
            request = replace(request, prompt=(first, *request.prompt[1:]))
        request_id = guarded("submit", lambda: self.decoder.submit(request))
        if any(request_id == other.request_id for other in self.played):
            raise DecoderError("submit gave the same id to two requests")
        one = Played(request, request_id, name(len(self.played)), [[] for _ in range(request.n)])
        one.disturbed = self.place if self.lag else None
        one.warm = self.place if self.books.begun(request) else None
        one.heir = self.place if any(other.looks or other.final for other in self.played) else None
        self.played.append(one)

    def step(self, step: Step) -> None:
        for _ in range(step.amount):
            self.tick()

    def drain(self, step: Step) -> None:
        for place, one in enumerate(self.played):
            if one.held:
                self.resume(Step("resume", place))
        for _ in range(PATIENCE):
            if not any(one.final is None for one in self.played):
                break
            self.tick()
        else:
            raise DecoderError(f"requests did not end within {PATIENCE} ticks")
        for _ in range(1 + self.lag):
            self.tick()
            self.counts["idle ticks"] += 1

    def cancel(self, step: Step) -> None:
        one = self.played[step.who]
        if not one.live:
            self.expect("CXL", f"cancel {one.label}, which has ended", "KeyError", self.called("cancel", one))
            return
        hazard = f"cancelled {self.phase(one)}"
        if not self.has(hazard):
            return
        self.counts[hazard] += 1
        self.expect("CXL", f"cancel {one.label}", "nothing", self.called("cancel", one))
        self.expect("CXL", f"cancel {one.label} once more", "KeyError", self.called("cancel", one))
        one.cancelled = self.place
        self.books.due(1 + self.lag, "CXL")
        for other in self.played:
            if other.live and other.bereaved is None:
                other.bereaved = self.place

    def preempt(self, step: Step) -> None:
        one = self.played[step.who]
        if not one.live:
            self.expect("SCH", f"preempt {one.label}, which has ended", "KeyError", self.called("preempt", one))
            return
        hazard = f"preempted {self.phase(one)}"
        if not self.has(hazard):
            return
        if not one.held:
            one.paused = (hazard, self._ticks, self.rounds_of(one))
        self.follow([one])  # what is in flight may be lost, and is drafted anew: perhaps by nobody
        self.expect("SCH", f"preempt {one.label}", "nothing", self.called("preempt", one))
        one.flying, one.held, one.disturbed = False, True, self.place if one.disturbed is None else one.disturbed
        self.books.due(1 + self.lag, "RES")

    def resume(self, step: Step) -> None:
        one = self.played[step.who]
        if not one.live:
            self.expect("SCH", f"resume {one.label}, which has ended", "KeyError", self.called("resume", one))
            return
        if one.paused is not None:
            hazard, ticks, rounds = one.paused
            waited = self._ticks > ticks and self.rounds_of(one) <= rounds + self.lag  # what was in flight may land
            self.counts[hazard] += waited
            self.counts["resumed"] += waited
            one.paused = None
        self.expect("SCH", f"resume {one.label}", "nothing", self.called("resume", one))
        one.held = False

    def has(self, hazard: str) -> bool:
        """Whether this run shall have a hazard."""
        return hazard.replace(" ", "-") not in self.lab.run.without

    def rounds_of(self, one: Played) -> int:
        return len(guarded("rounds", lambda: self.decoder.rounds(one.request_id)))

    def called(self, method: str, one: Played) -> str:
        """What calling cancel, preempt or resume comes to: nothing, or KeyError."""

        def call() -> str:
            try:
                getattr(self.decoder, method)(one.request_id)
            except KeyError:
                return "KeyError"
            return "nothing"

        return guarded(method, call)

    def own_drafter(self, step: Step) -> None:
        self.follow(self.played)
        guarded("script", lambda: self.decoder.script(None))

    def script(self, step: Step) -> None:
        self.own, self.prompter.right = False, step.amount
        guarded("script", lambda: self.decoder.script(self.prompter))

    def draft(self, step: Step) -> None:
        self.own = False
        guarded("schedule", lambda: self.decoder.schedule(draft=step.amount))

    def chunk(self, step: Step) -> None:
        guarded("schedule", lambda: self.decoder.schedule(chunk=step.amount))
        self.counts["chunks changed under way"] += any(one.live for one in self.played)
        self.size = step.amount
        self.disturb()

    def bucket(self, step: Step) -> None:
        guarded("schedule", lambda: self.decoder.schedule(bucket=step.amount))
        self.counts["buckets changed under way"] += any(one.live for one in self.played)
        self.disturb()

    def set_lag(self, step: Step) -> None:
        guarded("schedule", lambda: self.decoder.schedule(lag=step.amount))
        self.lag = step.amount
        self.disturb()

    def disturb(self) -> None:
        for one in self.played:
            if one.live and one.disturbed is None:
                one.disturbed = self.place

    def follow(self, ones: Sequence[Played]) -> None:
        """Rounds that the script was asked about drafted what it said, and nothing where it said nothing."""
        for one in ones:
            said = self.prompter.forget(one.request_id)
            for r in guarded("rounds", lambda one=one: self.decoder.rounds(one.request_id)) if said else ():
                if (r.sample, r.start) in said:
                    what = f"drafts of {one.label}, sample {r.sample}, behind {r.start + 1} tokens, as the script said"
                    self.expect("SCH", what, said[r.sample, r.start], list(r.proposals))

    # A tick

    def phase(self, one: Played) -> str:
        """Where a live request stands: held, waiting, being filled, drafted, or with a round in flight."""
        if one.held:
            return "while held"
        if not one.looks:
            return "while waiting"
        if one.flying:
            return "in flight"
        return "behind a round" if any(one.samples) else "while being filled"

    def tick(self) -> None:
        self._ticks += 1
        served = [one for one in self.played if one.live and not one.held]
        for one in served:
            if len(served) > 1 and one.neighbours is None:
                one.neighbours = self.place
        known, said = {one.request_id: one for one in self.played}, set[int]()
        for event in guarded("step", self.decoder.step):
            one = known.get(event.request_id)
            if one is None:
                raise DecoderError(f"an event names request {event.request_id}, which was not submitted here")
            self.hear(one, event)
            said.add(event.request_id)
        together = [one for one in self.played if one.request_id in said and one.final is None]
        for one in together:
            one.beside |= len(together) > 1
        self.drafted.clear()
        for one in self.played:
            if one.live:
                self.look(one)
        for one in served:
            filled = bool(one.looks) and len(one.looks[-1].tokens) - one.looks[-1].state.length <= 1
            one.flying = bool(self.lag) and (one.flying or (filled and one.request_id not in said))
            self.counts["ticks with a round in flight"] += one.flying
        self.counts["drafted beside undrafted"] += len(self.drafted) > 1
        self.books.tick()

    def hear(self, one: Played, event: Any) -> None:
        if isinstance(event, Refused):
            raise NotOffered(f"a request of {len(one.request.prompt)} tokens was refused: {event.error}")
        if one.final is not None:
            self.expect("CXL", f"an event of {one.label} behind its final one", "none", type(event).__name__)
        elif isinstance(event, Tokens):
            self.expect("CXL", f"tokens of {one.label} once it is cancelled", False, one.cancelled is not None)
            self.expect("SCH", f"tokens of {one.label} while it is preempted", False, one.held)
            one.samples[event.sample].extend(int(token) for token in event.ids)
        else:
            one.final, one.ended = event, self.place
            self.expect("SCH", f"the end of {one.label} while it is preempted", False, one.held and one.live)

    def look(self, one: Played) -> None:
        rounds = guarded("rounds", lambda: self.decoder.rounds(one.request_id))
        for sample in range(one.request.n):
            state = look(self.decoder, one.request_id, sample)
            if state is not None:
                tokens = committed(one.request, rounds, sample)
                self.books.own(one, sample, state)
                before = latest(one.looks, sample)
                new = noted(one.looks, one.request, self.place, sample, tokens, state)
                if new is not None and new.fresh and before is not None and any(one.samples):
                    self.drafted.add(bool([r for r in rounds if r.sample == sample][-1].proposals))
