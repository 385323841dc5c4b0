"""Verification of what `specqual adjudicate` wrote: the verdicts and where the arms part, derived again."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specqual.contract.keys import parse_json

from .adjudicate import FORMAT, SHARE, compare, flips, paired, sealed_up, status_of
from .evidence import MalformedEvidence, decide
from .kinds import Case
from .recorded import DTYPES
from .report import LARGEST_FILE, BadReport, canonical
from .rounding import EXACT, number
from .verdicts import Decision

MALFORMED = (MalformedEvidence, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Checked:
    """A report of recorded runs: its content, how many verdicts were derived again, and what does not follow."""

    content: dict[str, Any]
    derived: int
    differences: tuple[str, ...]


def check(path: Path) -> Checked:
    """Read a report of recorded runs; BadReport if it is truncated, altered or malformed."""
    content = read(path)
    stated = content.get("seal")
    if sealed_up({name: value for name, value in content.items() if name != "seal"})["seal"] != stated:
        raise BadReport(f"{path.name}: was altered: the seal does not match")
    if content.get("format") != FORMAT:
        raise BadReport(f"{path.name}: format {content.get('format')!r} is not {FORMAT!r}")
    try:
        decisions: list[Decision] = []
        found = tuple(differences(content, decisions))
    except MALFORMED as error:
        raise BadReport(f"{path.name}: is malformed ({type(error).__name__}: {error})") from None
    return Checked(content, len(decisions), found)


def read(path: Path) -> dict[str, Any]:
    """A JSON object of bounded size."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise BadReport(f"{path.name}: is larger than {LARGEST_FILE} bytes")
        content = parse_json(path.read_bytes())
        canonical(content)  # no infinity in disguise
    except OSError as error:
        raise BadReport(f"{path.name}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise BadReport(f"{path.name}: is truncated or no JSON ({error})") from None
    if not isinstance(content, dict):
        raise BadReport(f"{path.name}: is not a report of recorded runs")
    return content


def differences(content: dict[str, Any], decisions: list[Decision]) -> Iterator[str]:
    """What does not follow; the decisions that were derived are put into the list."""
    arms, envelope, tips = content["arms"], *(float(content["envelope"][name]) for name in ("nats", "tips"))
    if content["dtype"] not in DTYPES or list(arms) not in (["on"], ["off", "on"], ["on", "off"]):
        raise ValueError("dtype or arms")
    if number(content["dtype"]) is None and max(envelope, tips) > EXACT:
        yield f"rounding: {content['dtype']} is exact, so nothing explains {envelope:.3g} nats"
    for name, arm in arms.items():
        decisions.append(decide(arm["evidence"]))
        if plain(decisions[-1]) != arm["decision"]:
            yield f"{name}: the report says {arm['decision']['verdict']}, its evidence says {decisions[-1]}"
        yield from (f"{name}: {problem}" for problem in misfits(arm, envelope, tips))
    compared = content["on_against_off"]
    if (compared is None) != (len(arms) == 1):
        yield "on against off: there must be a comparison where there are two arms, and only there"
    elif compared is not None:
        again = compare_again(arms["on"]["evidence"]["cases"], arms["off"]["evidence"]["cases"], envelope)
        decisions.append(again.decision)
        if plain(again) != compared:
            said = compared["decision"]["verdict"]
            yield f"on against off: the report says {said}, the two arms say {again.decision}"
    if content["status"] != int(status_of(decisions)):
        yield f"exit status: the report says {content['status']}, its verdicts say {int(status_of(decisions))}"


def misfits(arm: dict[str, Any], envelope: float, tips: float) -> Iterator[str]:
    """What is wrong with the evidence on one log."""
    evidence = arm["evidence"]
    cases = evidence["cases"]
    tokens = sum(len(case["output"]) for case in cases)
    if evidence["kind"] != "flips":
        yield f"its evidence is of the kind {evidence['kind']}, a log's is flips"
    if evidence["guards"] != [{"hazard": "tokens emitted", "seen": tokens, "needed": 1}]:
        yield f"its evidence does not count the {tokens} tokens that were emitted"
    if evidence["notes"] != {"requests": len(cases)}:
        yield f"{len(cases)} requests were judged, which is not what it says"
    if any(case["envelope"] != envelope for case in cases):
        yield f"its evidence is judged by another envelope than {envelope:.3g} nats"
    if any((case["spread"], case["sides"], case["alpha"], case["arm"]) != (tips, 1, SHARE, "on") for case in cases):
        yield f"its flips are judged by another spread than {tips:.3g} nats, or at another error rate than {SHARE:g}"
    if any(case["flips"] != flips(case["output"], case["argmax"]) for case in cases):
        yield "its flips are not the tokens that are not the best"
    if [case["line"] for case in cases] != sorted({case["line"] for case in cases}):
        yield "its requests are not in the order of the log, each once"


def compare_again(on: list[Case], off: list[Case], envelope: float) -> Any:
    return compare(on, off, *paired(*([tuple(case["prompt"]) for case in side] for side in (on, off))), envelope)


def plain(found: Any) -> Any:
    """A dataclass as it comes back from JSON."""
    return json.loads(json.dumps(asdict(found)))
