"""Serving a plan: tick by tick, by no clock, and everything that was heard on the way."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import index
from typing import Any

from specqual.conformance.drive import DecoderError
from specqual.contract import (
    Event,
    Finished,
    Inspectable,
    InvalidRequest,
    Proposal,
    Refused,
    Request,
    Round,
    Schedulable,
    ScriptContext,
    Scripted,
    Tokens,
    Traced,
)

from .calls import called
from .course import Course, Looked, Outcome
from .plan import Asked, Plan

USUAL = {"lag": 0, "chunk": 256}
ENDLESS = 16  # times as many tokens as were asked for: they will have no end
PATIENCE = 400  # ticks that bring no token and no end although somebody is to be served


Told = Callable[[str, Any], None]
"""Hears "submitted", "events" and "ended", with what they are about; for gauges."""


class Traffic:
    """One decoder being served one plan."""

    def __init__(self, decoder: Any, plan: Plan, told: Told) -> None:
        self.decoder, self.plan, self.told, self.found = decoder, plan, told, Outcome()
        self.live: dict[int, Course] = {}
        self.known: dict[int, Course] = {}
        self.places: dict[int, Course] = {}
        self.waiting = list(range(len(plan.asked)))
        self.quiet = 0
        self.bad = list(plan.bad)

    def run(self) -> Outcome:
        """Serve it to its end, and tick on for a while with nothing to do."""
        found, plan = self.found, self.plan
        if isinstance(self.decoder, Scripted):
            called(self.decoder.script, plan.script and self._script)
        while self.waiting or self.live:
            self._change(plan.schedule.get(found.ticks % plan.period, {}))
            self._submit(plan.live[found.ticks % len(plan.live)])
            self._interfere()
            found.widths.append(len(self.live))
            self._hear(self._step())
            if found.ticks in plan.looks:
                self._look()
            found.ticks += 1
        self._change(USUAL | {"draft": self.decoder.claims.limits.max_draft})
        for _ in range(plan.idle):
            self._hear(self._step())
            found.idle += 1
        if isinstance(self.decoder, Scripted):
            called(self.decoder.script, None)
        return found

    def _step(self) -> list[Event]:
        """What a tick says; DecoderError where that is not what events are. A generator runs within the call."""

        def step() -> list[Any]:
            return list(self.decoder.step())

        events = called(step)
        for event in events:
            if not isinstance(event, Event):
                raise DecoderError(f"step said {event!r}, which is no event")
            if isinstance(event, Tokens):
                try:
                    tuple(map(index, event.ids))
                except TypeError as error:
                    raise DecoderError(f"step said {event!r}, whose ids are none") from error
        return events

    def _script(self, context: ScriptContext) -> Proposal:
        """The plan's drafter, which knows requests by their places: ids depend on what was served before."""
        assert self.plan.script is not None
        return self.plan.script(replace(context, request_id=self.known[context.request_id].place))

    def _change(self, sizes: Any) -> None:
        if sizes and isinstance(self.decoder, Schedulable):
            called(self.decoder.schedule, **sizes)
            self.found.changes += 1

    def _submit(self, limit: int) -> None:
        if self.bad and self.found.ticks % 3 == 1:
            self._refuse(*self.bad.pop())
        while len(self.live) < limit:
            place = next((place for place in self.waiting if self._ready(place)), None)
            if place is None:
                return
            self.waiting.remove(place)
            asked = self.plan.asked[place]
            request = self._resolved(asked)
            course = Course(place, asked, request, -1 - place, self.found.ticks, [[] for _ in range(request.n)])
            self.places[place] = course
            self.found.courses.append(course)
            try:
                course.request_id = called(self.decoder.submit, request, known=(InvalidRequest,))
            except InvalidRequest as error:  # although it is well-formed
                course.malformed = str(error)
                continue
            if course.request_id in self.known:
                raise DecoderError(f"submit gave the id {course.request_id} a second time")
            self.live[course.request_id] = self.known[course.request_id] = course
            self.told("submitted", course)

    def _ready(self, place: int) -> bool:
        before = self.plan.asked[place].follows
        return before is None or (before in self.places and self.places[before].request_id not in self.live)

    def _resolved(self, asked: Asked) -> Request:
        """The request, behind what was said before it; only as much of that as leaves the room that it asks for."""
        if asked.follows is None:
            return asked.request
        before = self.places[asked.follows]
        prompt = (*before.request.prompt, *before.samples[0], *asked.request.prompt)
        most = self.decoder.claims.limits.max_context - asked.request.max_tokens
        return replace(asked.request, prompt=prompt[-most:] if len(prompt) > most else prompt)

    def _refuse(self, field: str, request: Request) -> None:
        self.found.bad += 1
        try:
            called(self.decoder.submit, request, known=(InvalidRequest,))
        except InvalidRequest as error:
            if not error.field.startswith(field):
                self.found.amiss.append(("bad requests", f"{field} is malformed, and {error.field} was named"))
            return
        self.found.amiss.append(("bad requests", f"a request with a malformed {field} was taken"))

    def _interfere(self) -> None:
        now = self.found.ticks
        for course in list(self.live.values()):
            age, asked = now - course.submitted, course.asked
            if asked.cancel is not None and age >= asked.cancel and not course.cancelled:
                self._take_rounds(course)
                course.phase = "while held" if course.held else self._phase(course) if age else "when submitted"
                called(self.decoder.cancel, course.request_id)
                continue
            for start, ticks in asked.preempt if isinstance(self.decoder, Schedulable) else ():
                if age == start and not course.held:
                    course.held = True
                    course.preempted += self._owns(course)  # else there is nothing to take
                    called(self.decoder.preempt, course.request_id)
                elif age == start + ticks and course.held:
                    course.held = False
                    called(self.decoder.resume, course.request_id)

    def _owns(self, course: Course) -> bool:
        """Whether a request has something to lose, as far as the decoder tells."""
        if isinstance(self.decoder, Inspectable):
            try:
                called(self.decoder.inspect, course.request_id, known=(KeyError,))
            except KeyError:
                return False
        return True

    def _phase(self, course: Course) -> str:
        if any(course.samples):
            return "behind a round"
        if not isinstance(self.decoder, Inspectable):
            return "before a round"
        try:
            length = called(self.decoder.inspect, course.request_id, known=(KeyError,)).length
        except KeyError:
            return "while waiting"
        return "while being filled" if length else "when let in"

    def _take_rounds(self, course: Course) -> None:
        if isinstance(self.decoder, Traced):
            course.rounds = tuple(called(self.decoder.rounds, course.request_id))
            if odd := [r for r in course.rounds if not isinstance(r, Round)]:
                raise DecoderError(f"rounds said {odd[0]!r}, which is no round")

    def _hear(self, events: Sequence[Event]) -> None:
        self.told("events", events)
        on = all(course.held for course in self.live.values())  # whether the epoch comes nearer to its end
        for event in events:
            course = self.known.get(event.request_id)
            if course is None:
                self.found.amiss.append(("events", f"a {type(event).__name__} names a request that nobody submitted"))
            elif event.request_id not in self.live:
                course.late += 1
            elif isinstance(event, Tokens):
                if course.cancelled or course.held:
                    course.late += 1
                elif 0 <= event.sample < course.request.n:
                    on |= len(event.ids) > 0
                    course.samples[event.sample] += map(int, event.ids)
                    if len(course.samples[event.sample]) > ENDLESS * course.request.max_tokens:
                        raise DecoderError(f"request {course.place} goes on beyond {ENDLESS} times what it asked for")
                else:
                    self.found.amiss.append(("events", f"sample {event.sample} of {course.request.n}"))
            else:
                on = True
                self._end(course, event)
        self.quiet = 0 if on else self.quiet + 1
        if self.quiet > PATIENCE:
            raise DecoderError(f"{len(self.live)} requests heard neither a token nor their end for {PATIENCE} ticks")
        for course in self.live.values():
            course.beside = max(course.beside, len(self.live) - 1)

    def _end(self, course: Course, event: Finished | Refused) -> None:
        if isinstance(event, Refused):
            course.refused = event.error
        else:
            course.reasons, course.usage = event.reasons, event.usage
            if not course.cancelled:
                self._take_rounds(course)
        del self.live[course.request_id]
        self.told("ended", course)

    def _look(self) -> None:
        """The state of the sample that was submitted last of those that have one, and how many have none."""
        if not (isinstance(self.decoder, Inspectable) and isinstance(self.decoder, Traced)):
            return
        seen = None
        for course in self.live.values():
            try:
                state = called(self.decoder.inspect, course.request_id, known=(KeyError,))
            except KeyError:
                self.found.waited += not course.held
                continue
            rounds = called(self.decoder.rounds, course.request_id)
            tokens = (*course.request.prompt, *(t for r in rounds if r.sample == 0 for t in r.committed))
            seen = Looked(course.place, tokens[: state.length], state) if state.length else seen
        if seen is not None:
            self.found.looked.append(seen)
