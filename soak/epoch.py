"""One epoch: traffic drawn, served to quiescence, and judged; a pure function of seed, scenario and number.

The decoder lives on from epoch to epoch, so that what it leaves behind can show; nothing that a sound decoder says
depends on it, so an epoch's row is the same in whichever process and after whatever history it ran.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from time import monotonic
from typing import Any

from specqual.conformance.drive import DecoderError, NotOffered, guarded
from specqual.conformance.verdicts import Verdict
from specqual.contract import InvalidRequest, Request, Unsupported

from .bench import Bench
from .course import Course, Outcome
from .gauges import Meter
from .hazards import UNSEEN, counted, unseen
from .objects import objects
from .oracles import conservation, events, graphs, repeated
from .plan import chance_of
from .records import Epoch, Violation
from .scenarios import Scenario
from .serving import Told, Traffic
from .stage import NoStage, Stage
from .tokens import laws, regret
from .twins import alone, states

ORACLES = (events, regret, alone, repeated, states, conservation, graphs, objects)
LONGEST = 900.0  # seconds that an epoch may take before its decoder is taken to hang
MOST = 8  # violations of one epoch that are kept
BEHIND = 400  # earlier epochs that a bundle names


@dataclass(frozen=True, slots=True)
class Played:
    """An epoch with the seconds that its oracles took."""

    epoch: Epoch
    oracle_seconds: float


def play(stage: Stage, scenario: Scenario, seed: int, number: int, told: Told = lambda what, about: None) -> Played:
    """Serve and judge an epoch; a decoder that fails is an ERROR, and is made anew for the next one."""
    name = f"{seed}/{scenario.name}/{number}"
    try:
        decoder = stage.decoder
        plan = scenario.draw(chance_of(seed, scenario.name, number), stage.room)
    except NoStage as error:
        return Played(Epoch(scenario.name, number, Verdict.SKIPPED, "", {f"skipped: {error}": 1}), 0.0)
    except DecoderError as error:
        stage.renew()
        told = Violation("decoder", str(error), bundle(stage, scenario, seed, number, Outcome(), None))
        return Played(Epoch(scenario.name, number, Verdict.ERROR, "", violations=(told,)), 0.0)
    traffic, oracle_seconds = Traffic(decoder, plan, told), 0.0
    bench = Bench(stage, plan, traffic.found, chance_of(seed, scenario.name, number, "places").getrandbits(62))
    try:
        guarded("an epoch", traffic.run, LONGEST)
        began = monotonic()
        for oracle in ORACLES:
            guarded(oracle.__name__, lambda oracle=oracle: oracle(bench), LONGEST)  # type: ignore[misc]
        evidence = laws(bench)
        oracle_seconds = monotonic() - began
    except (DecoderError, NoStage, InvalidRequest, Unsupported, NotOffered) as error:
        stage.renew()
        bench.amiss, evidence = [("decoder", str(error), None)], ()
    bench.amiss += [(oracle, detail, None) for oracle, detail in traffic.found.amiss]
    counts, histograms = counted(traffic.found, plan, stage.room.limits.max_context)
    told("judged", bench.worst)
    failed = any(oracle == "decoder" for oracle, _, _ in bench.amiss)
    verdict = Verdict.ERROR if failed else Verdict.VIOLATED if bench.amiss else Verdict.EXACT
    violations = tuple(
        Violation(oracle, detail, bundle(stage, scenario, seed, number, traffic.found, place))
        for oracle, detail, place in bench.amiss[:MOST]
    )
    if bench.regrets:
        histograms = histograms | {"regret": dict(sorted(bench.regrets.items()))}
    blind = Counter(f"{UNSEEN}{hazard}" for hazard in unseen(decoder) if hazard in scenario.hazards)
    every = dict(sorted((counts + bench.counts + blind).items()))
    stage.behind.append((scenario.name, number))
    done = Epoch(scenario.name, number, verdict, digest(name, traffic.found), every, evidence, histograms, violations)
    return Played(done, oracle_seconds)


def digest(name: str, outcome: Outcome) -> str:
    """Of everything that was put out, request by request."""
    said = [
        (course.place, course.samples, [str(reason) for reason in course.reasons], course.refused is not None)
        for course in sorted(outcome.courses, key=lambda course: course.place)
    ]
    return blake2b(repr((name, said)).encode(), digest_size=16).hexdigest()


def bundle(
    stage: Stage, scenario: Scenario, seed: int, number: int, outcome: Outcome, place: int | None
) -> dict[str, Any]:
    """What runs an epoch again, with the request that a finding is about and the epochs that had gone before."""
    run = stage.run
    found: dict[str, Any] = {
        "seed": seed,
        "scenario": scenario.name,
        "epoch": number,
        "decoder": run.decoder,
        "target": str(run.setup.target),
        "draft": None if run.setup.draft is None else str(run.setup.draft),
        "rule": str(run.setup.rule),
        "draft_length": run.setup.draft_length,
        "dtype": run.setup.dtype,
        "options": {name: str(value) for name, value in run.setup.options.items()},
        "behind": stage.behind[-BEHIND:],
        "scale": stage.scale,
        "ticks": outcome.ticks,
    }
    course = next((course for course in outcome.courses if course.place == place), None)
    if course is not None:
        found |= {"place": place, "request": asked(course.request), "samples": course.samples}
        found |= {"submitted": course.submitted, "cancelled": course.phase, "preempted": course.preempted}
    return found


def asked(request: Request) -> dict[str, Any]:
    return asdict(request)


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
            gauges(meter.read())

    return told
