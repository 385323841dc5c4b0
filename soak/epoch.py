"""One epoch: traffic drawn, served to quiescence, and judged; a pure function of seed, scenario and number.

The decoder lives on from epoch to epoch, so that what it leaves behind can show; nothing that a sound decoder says
depends on it, so an epoch's row is the same in whichever process and after whatever history it ran.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from traceback import extract_tb
from typing import Any

from specqual.conformance.drive import DecoderError, NotOffered
from specqual.conformance.verdicts import Verdict
from specqual.contract import InvalidRequest, Unsupported

from .bench import Bench
from .course import Course, Outcome
from .gauges import Meter
from .hazards import UNSEEN, counted, unseen
from .objects import objects
from .oracles import captures, conservation, events, graphs, repeated
from .plan import chance_of
from .records import DECODER, SUITE, Epoch, Violation
from .scenarios import Scenario
from .serving import Told, Traffic
from .stage import NoStage, Stage
from .tokens import laws, regret
from .twins import alone, states

ORACLES = (events, regret, alone, repeated, states, conservation, graphs, objects)
MOST = 4  # violations of one oracle in one epoch that a bundle is gathered for
THEIRS = (DecoderError, NoStage, InvalidRequest, Unsupported, NotOffered)  # what is said of a decoder, or by it


@dataclass(frozen=True, slots=True)
class Played:
    """An epoch with the seconds that its oracles took."""

    epoch: Epoch
    oracle_seconds: float


def play(stage: Stage, scenario: Scenario, seed: int, number: int, told: Told = lambda what, about: None) -> Played:
    """Serve and judge an epoch; where the decoder, or the suite itself, fails it is an ERROR, and the next one has a
    new decoder. NoStage where there is none to be had. The bundles of its violations say what it came to, and not yet
    how it is served again."""
    name = f"{seed}/{scenario.name}/{number}"
    decoder = stage.decoder
    plan = scenario.draw(chance_of(seed, scenario.name, number), stage.room)
    traffic, oracle_seconds = Traffic(decoder, plan, told), 0.0
    salt = chance_of(seed, scenario.name, number, "places").getrandbits(62)
    bench = Bench(stage, plan, traffic.found, salt, captures(decoder))
    try:
        traffic.run()
        began = monotonic()
        for oracle in ORACLES:
            oracle(bench)
        evidence = laws(bench)
        oracle_seconds = monotonic() - began
        counts, histograms = counted(traffic.found, plan, stage.room.limits.max_context)
        stage.behind.append((scenario.name, number))
    except Exception as error:
        stage.renew()
        bench.amiss.append((*blamed(error), None))
        counts, histograms, evidence = Counter(), {}, ()
    bench.amiss += [(oracle, detail, None) for oracle, detail in traffic.found.amiss]
    stage.judge.forget()  # no other epoch asks for these passes, and hundreds of MB of them would look like a leak
    told("judged", bench.worst)
    violations = tuple(found(bench))
    worst = (Verdict.VIOLATED, Verdict.ERROR)
    verdict = next((one for one in worst if one in {v.verdict for v in violations}), Verdict.EXACT)
    if bench.regrets:
        histograms = histograms | {"regret": dict(sorted(bench.regrets.items()))}
    blind = Counter(f"{UNSEEN}{hazard}" for hazard in unseen(decoder, stage.free) if hazard in scenario.hazards)
    every = dict(sorted((counts + bench.counts + blind).items()))
    done = Epoch(scenario.name, number, verdict, digest(name, traffic.found), every, evidence, histograms, violations)
    return Played(done, oracle_seconds)


def digest(name: str, outcome: Outcome) -> str:
    """Of everything that was put out, request by request."""
    said = [
        (course.place, course.samples, [str(reason) for reason in course.reasons], course.refused is not None)
        for course in sorted(outcome.courses, key=lambda course: course.place)
    ]
    return blake2b(repr((name, said)).encode(), digest_size=16).hexdigest()


def broken(task: tuple[str, int], error: Exception) -> Epoch:
    """An epoch of which nothing came but an exception."""
    return Epoch(*task, Verdict.ERROR, "", violations=(Violation(*blamed(error), {}),))


def blamed(error: Exception) -> tuple[str, str]:
    """Who failed where an epoch broke, the decoder or the suite itself, and a sentence with the place that raised."""
    if not isinstance(error, THEIRS):
        return SUITE, f"{type(error).__name__}: {error}, raised at {where(error)}"
    cause = error.__cause__
    return DECODER, f"{error}, raised at {where(cause)}" if cause is not None else str(error)


def where(error: BaseException) -> str:
    """The file, with the folder that it lies in, and the line that raised: decoder/engine.py:120."""
    *_, last = extract_tb(error.__traceback__)
    return f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno}"


def found(bench: Bench) -> Iterator[Violation]:
    """All that is amiss, with a bundle for the first of each oracle."""
    seen = Counter[str]()
    for oracle, detail, place in bench.amiss:
        seen[oracle] += 1
        yield Violation(oracle, detail, bundle(bench.outcome, place) if seen[oracle] <= MOST else None)


def bundle(outcome: Outcome, place: int | None) -> dict[str, Any]:
    """What an epoch came to, and the request that a finding is about."""
    course = next((course for course in outcome.courses if course.place == place), None)
    if course is None:
        return {"ticks": outcome.ticks}
    request, phase = asdict(course.request), course.phase
    told = {"place": place, "request": request, "samples": course.samples, "submitted": course.submitted}
    return {"ticks": outcome.ticks, **told, "cancelled": phase, "preempted": course.preempted}


def heard(meter: Meter, gauges: Callable[[dict[str, float]], None]) -> Told:
    """Tell a meter what happens, and pass its gauges on whenever they are due."""

    def told(what: str, about: Any) -> None:
        if what == "submitted":
            meter.submitted()
        elif what == "events":
            meter.heard(about)
        elif what == "ended":
            course: Course = about
            meter.ended(len(course.request.prompt), course.rounds)
        elif what == "judged":
            meter.judged(about)
            meter.idle()
        if what in ("events", "judged") and meter.due:
            with suppress(DecoderError):  # what fails at rest, too, is found by the oracles
                gauges(meter.read())

    return told
