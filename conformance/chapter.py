"""From a function that gathers evidence to the pytest test of a clause."""

import json
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from importlib import import_module
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from specqual.contract import Unsupported

from .clauses import CLAUSES, Clause
from .drive import DecoderError, NotOffered
from .evidence import Evidence, decide
from .facts import offered, plain
from .lab import Lab
from .proof import prove
from .seams import seam
from .statistics.budget import PLAN, entry, rate
from .verdicts import Decision, Outcome, Verdict, outcome
from .waivers import Waiver, waive

Gather = Callable[[Lab], Evidence]
GATHERERS: dict[str, Gather] = {}  # by clause; filled as chapters are imported
RESULT = pytest.StashKey[str]()  # JSON: a string crosses process borders whatever is in it


@dataclass(frozen=True, slots=True)
class Result:
    """What a run says about one clause, as one line of the report."""

    clause: str
    verdict: str
    detail: str
    delta: float | None
    evidence: dict[str, Any]
    proof: str
    replay: str
    seconds: float
    waiver: dict[str, str] | None = None
    spent: dict[str, float] = field(default_factory=dict)  # of the error budget, while this clause ran


def finite(value: Any) -> Any:
    """The value with NaN and infinities as text: JSON has no numbers for them, and no comparison takes them for one."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def recorded(evidence: Evidence) -> dict[str, Any]:
    """Evidence as it comes back from a report: plain JSON, keys in order."""
    found: dict[str, Any] = json.loads(json.dumps(finite(evidence.json()), sort_keys=True, allow_nan=False))
    return found


def settle(lab: Lab, clause: Clause, gather: Gather, waivers: tuple[Waiver, ...] = ()) -> Result:
    """Gather evidence for a clause and decide it; whatever goes wrong on the way is a verdict, too."""
    started, before = perf_counter(), set(lab.budget.spent)
    evidence = Evidence("occurrences").json()
    try:
        lab.require(*clause.needs)
        evidence = recorded(gather(lab))
        decision = decide(evidence)
    except NotOffered as reason:
        decision = Decision(Verdict.SKIPPED, str(reason))
    except Unsupported as reason:
        decision = Decision(Verdict.SKIPPED, f"the decoder refuses: {reason}")
    except Exception as error:
        what = str(error) if isinstance(error, DecoderError) else f"{type(error).__name__}: {error}"
        decision = Decision(Verdict.ERROR, what)
        evidence = Evidence("occurrences", notes={"traceback": traceback.format_exc(limit=-6)}).json()
        lab.renew()
    replay = lab.run.replay(clause.id)
    proof = prove(clause, evidence, decision, replay) if decision.verdict is Verdict.VIOLATED else ""
    waiver = waive(waivers, clause.id) if decision.verdict is Verdict.VIOLATED else None
    verdict = Verdict.WAIVED if waiver is not None else decision.verdict
    seconds = round(perf_counter() - started, 3)
    excuse = None if waiver is None else asdict(waiver)
    spent = {name: alpha for name, alpha in lab.budget.spent.items() if name not in before}
    return Result(clause.id, verdict, decision.detail, decision.delta, evidence, proof, replay, seconds, excuse, spent)


def undecided(clause: str, problem: str, replay: str, seconds: float) -> Result:
    """The ERROR of a clause that came to no verdict, because the test process died or another plugin broke its test."""
    evidence = Evidence("occurrences", notes={"traceback": problem}).json()
    detail = f"no verdict was reached: {problem.strip().splitlines()[-1] if problem.strip() else 'the test failed'}"
    spent = {entry(clause, 1): rate(clause, 1)} if clause in PLAN else {}  # for all that is known
    return Result(clause, Verdict.ERROR, detail, None, evidence, "", replay, round(seconds, 3), spent=spent)


def clause_of(nodeid: str) -> str | None:
    """The clause that the test of this node decides; None for a test that is none of ours."""
    path, _, name = nodeid.partition("::")
    if not (Path(__file__).parent / Path(path).name).is_file():
        return None
    test = getattr(import_module(f"{__package__}.{Path(path).stem}"), name, None)
    return next((mark.args[0] for mark in getattr(test, "pytestmark", ()) if mark.name == "clause"), None)


def clause(identifier: str, *, sees: tuple[str, ...] | None = None) -> Callable[[Gather], Callable[..., None]]:
    """Turn a function (lab) -> Evidence into the test of a clause; its name stays the test's name.

    `sees` names the seams that it looks through where they are offered; then the verdict says which were.
    """
    about = CLAUSES[identifier]

    def decorate(gather: Gather) -> Callable[..., None]:
        gather = gather if sees is None else naming(gather, sees)
        GATHERERS[identifier] = gather

        @pytest.mark.clause(identifier)
        def test(lab: Lab, waivers: tuple[Waiver, ...], request: pytest.FixtureRequest) -> None:
            __tracebackhide__ = True
            result = settle(lab, about, gather, waivers)
            request.node.stash[RESULT] = json.dumps(asdict(result) | asked_of(lab))
            show(result, outcome(Verdict(result.verdict), about.level, lab.run.profile))

        test.__name__, test.__qualname__, test.__doc__ = gather.__name__, gather.__name__, about.requirement
        test.__module__ = gather.__module__
        return test

    return decorate


def naming(gather: Gather, sees: tuple[str, ...]) -> Gather:
    """The same evidence, with the seams that it was seen by."""

    @wraps(gather)
    def gathered(lab: Lab) -> Evidence:
        found = gather(lab)
        return replace(found, notes={**found.notes, **seam(lab, *sees)})

    return gathered


def asked_of(lab: Lab) -> dict[str, Any]:
    """The decoder's claims and the protocols that it offers, as JSON; None for each if it could not be made."""
    try:
        return {"claims": plain(lab.claims), "offers": offered(lab.decoder)}
    except Exception:
        return {"claims": None, "offers": None}


def show(result: Result, wanted: Outcome) -> None:
    """Pass, fail or skip the running test."""
    __tracebackhide__ = True
    bound = f" (≤ {result.delta:.3g})" if result.delta is not None else ""
    text = f"{result.clause} {result.verdict}{bound}: {result.detail}"
    if wanted is Outcome.FAILED:
        trace = result.evidence.get("notes", {}).get("traceback", "")
        pytest.fail("\n".join(part for part in (result.proof or text, trace) if part), pytrace=False)
    if wanted is Outcome.SKIPPED:
        pytest.skip(text)
