"""Verification of a finished report: every verdict derived again from the evidence beside it, and that evidence held
against the specification and the header.

What this cannot show is that the evidence was gathered: whoever makes it up consistently is not found out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

from .clauses import CLAUSES, JUDGE_ONLY, status_of
from .envelopes import unlike
from .evidence import MalformedEvidence, decide
from .facts import BadFacts, Facts
from .forms import misfits
from .proof import prove
from .reasons import believed, wrong
from .replay import follows
from .report import AGAIN, BadReport, Loaded, load
from .statistics.budget import ALPHA, Overspent, entry, overdrawn, parsed, total
from .verdicts import Decision, Verdict

UNDECIDED = frozenset({Verdict.SKIPPED, Verdict.ERROR})  # no evidence speaks; the reason stands in the line
WAIVER = {"clause", "reason", "link", "expires"}
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of a report: how many verdicts were derived again, what does not follow, and what nothing in the
    report bears out: clauses that were skipped on somebody's word, or broke the decoder."""

    loaded: Loaded
    derived: int
    undecided: int
    believed: tuple[str, ...]
    differences: tuple[str, ...]


def audit(directory: Path) -> Audit:
    """Load a report and derive its verdicts again; BadReport if it is truncated, altered or malformed."""
    loaded = load(directory)
    try:
        facts = Facts.of(loaded.header)
    except BadFacts as error:
        raise BadReport(f"line 1: {error}") from None
    differences, seen, taken = list[str](), set[str](), list[str]()
    for number, line in enumerate(loaded.verdicts, start=2):
        clause = line.get("clause")
        if clause not in list(CLAUSES) or line.get("verdict") not in list(Verdict):
            raise BadReport(f"line {number}: has no known clause and verdict")
        if clause in seen:
            raise BadReport(f"line {number}: {clause} stands twice")
        seen.add(clause)
        try:
            found = list(problems(line, facts, loaded.header))
        except MalformedEvidence as error:
            raise BadReport(f"line {number}: {clause}: {error}") from None
        except MALFORMED as error:
            raise BadReport(f"line {number}: {clause}: is malformed ({type(error).__name__}: {error})") from None
        differences += [f"{clause}: {problem}" for problem in found]
        if line["verdict"] == Verdict.ERROR or (
            line["verdict"] == Verdict.SKIPPED and believed(facts, clause, line["detail"])
        ):
            taken.append(clause)
    differences += [*unreached(loaded, seen), *overspent(loaded)]
    try:
        differences += unlike(loaded.verdicts)
    except MALFORMED as error:
        raise BadReport(f"envelopes: are malformed ({type(error).__name__}: {error})") from None
    status = status_of([*loaded.verdicts, *repeated(loaded)], facts.profile)
    if loaded.footer.get("status") != status:
        differences.append(
            f"exit status: the report says {loaded.footer.get('status')}, its verdicts say {int(status)}"
        )
    undecided = sum(line["verdict"] in UNDECIDED for line in loaded.verdicts)
    return Audit(loaded, len(loaded.verdicts) - undecided, undecided, tuple(taken), tuple(differences))


def checked(directory: Path) -> Loaded:
    """A report in which everything follows; BadReport names the first thing that does not."""
    found = audit(directory)
    if found.differences:
        raise BadReport(found.differences[0])
    return found.loaded


def problems(line: dict[str, Any], facts: Facts, header: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a verdict; MalformedEvidence, or an error of a dictionary's, for what no run writes."""
    clause, verdict, evidence = CLAUSES[line["clause"]], Verdict(line["verdict"]), line["evidence"]
    if not isinstance(evidence, dict):
        raise MalformedEvidence("evidence: there is none")
    decision = decide(evidence)
    if not (type(line["seconds"]) in (int, float) and isfinite(line["seconds"]) and line["seconds"] >= 0):
        yield f"took {line['seconds']!r} seconds"
    if not follows(line["replay"], header, clause.id):
        yield "its replay is not the command that runs this clause of this run again"
    if verdict in UNDECIDED:
        yield from undecided(line, facts)
        wanted = Decision(verdict, "")
    else:
        yield from decided(line, decision, facts)
        wanted = decision
    proved = wanted.verdict is Verdict.VIOLATED
    if line["proof"] != (prove(clause, evidence, wanted, line["replay"]) if proved else ""):
        yield "its proof is not the one that its evidence gives"
    yield from unwaived(line, facts)


def undecided(line: dict[str, Any], facts: Facts) -> Iterator[str]:
    """What is wrong with a clause that was skipped, or in which the decoder broke."""
    evidence, verdict, detail = line["evidence"], line["verdict"], line["detail"]
    if evidence["cases"] or evidence["guards"] or evidence["kind"] != "occurrences" or line["delta"] is not None:
        yield f"the report says {verdict}, yet it holds evidence to decide by"
    problem = wrong(facts, line["clause"], detail) if verdict == Verdict.SKIPPED else ""
    if problem:
        yield f"the report says SKIPPED and {problem}: {detail}"


def decided(line: dict[str, Any], decision: Decision, facts: Facts) -> Iterator[str]:
    """What is wrong with a verdict that evidence must bear out."""
    clause, verdict = CLAUSES[line["clause"]], Verdict(line["verdict"])
    stated = Verdict.VIOLATED if verdict is Verdict.WAIVED else verdict
    said = (decision.verdict, decision.detail, decision.delta)
    if said != (stated, line["detail"], line["delta"]):
        yield f"the report says {verdict}, its evidence says {decision}"
    if facts.claims is None:
        if clause.id not in JUDGE_ONLY and clause.chapter != "CKP":
            yield f"the report says {verdict}, and its header knows no decoder that could have been asked"
        return
    lacking = [name for name in clause.needs if name not in facts.offers]
    if lacking:
        yield f"the report says {verdict}, though the decoder does not offer {lacking[0]}"
    yield from misfits(clause.id, line["evidence"], decision.verdict, facts)


def unwaived(line: dict[str, Any], facts: Facts) -> Iterator[str]:
    """What is wrong with a waiver, or with there being none."""
    waiver, verdict = line["waiver"], line["verdict"]
    if (verdict == Verdict.WAIVED) != (isinstance(waiver, dict) and set(waiver) == WAIVER):
        yield f"the report says {verdict}, {'without' if verdict == Verdict.WAIVED else 'with'} a waiver"
    elif waiver is not None:
        if waiver["clause"] != line["clause"]:
            yield f"its waiver is one of {waiver['clause']}"
        if not all(isinstance(waiver[name], str) and waiver[name].strip() for name in ("reason", "link")):
            yield "its waiver has no reason and link"
        if date.fromisoformat(waiver["expires"]) < facts.day:
            yield f"its waiver expired on {waiver['expires']}, before the run of {facts.day}"


def unreached(loaded: Loaded, seen: set[str]) -> Iterator[str]:
    """Clauses that were selected and have no verdict, and the other way round."""
    selected = loaded.header.get("clauses")
    if not isinstance(selected, list) or any(name not in list(CLAUSES) for name in selected):
        raise BadReport("line 1: clauses: must name the clauses that were selected")
    for name in selected:
        if name not in seen:
            yield f"{name}: was selected, and the report has no verdict on it"
    for name in sorted(seen.difference(selected)):
        yield f"{name}: has a verdict, and was not selected"


def repeated(loaded: Loaded) -> list[dict[str, Any]]:
    """Further verdicts on clauses that have one."""
    again = loaded.footer.get("again")
    decided = {line["clause"] for line in loaded.verdicts}
    whole = isinstance(again, list) and all(isinstance(one, dict) and set(one) == set(AGAIN) for one in again)
    if not whole or any(one["clause"] not in decided or one["verdict"] not in list(Verdict) for one in again):
        raise BadReport("the footer: again: must name clause, verdict and spent of clauses that were run again")
    if any(not isinstance(one["spent"], dict) for one in again):
        raise BadReport("the footer: again: does not say what was spent of the error budget")
    return again


def overspent(loaded: Loaded) -> list[str]:
    """What is wrong with the error budget: every error rate in evidence must have been paid for, and the sum agree."""
    found = []
    for line in loaded.verdicts:
        spent = line.get("spent")
        if not isinstance(spent, dict):
            raise BadReport(f"{line['clause']}: does not say what it spent of the error budget")
        cases = line["evidence"].get("cases") or ()
        for alpha in (case["alpha"] for case in cases if isinstance(case, dict) and "alpha" in case):
            if alpha not in spent.values():
                found.append(f"{line['clause']}: was decided at an error rate of {alpha}, which was not paid for")
        strange = [name for name in spent if "#" in name and not name.startswith(f"{line['clause']} #")]
        found += [f"{line['clause']}: spent what is another clause's, {name}" for name in strange]
    try:
        stated = {"alpha": ALPHA, "spent": total(line["spent"] for line in (*loaded.verdicts, *repeated(loaded)))}
    except Overspent as error:
        return [*found, str(error)]
    found += [*overdrawn(stated["spent"]), *leaps(line["spent"] for line in (*loaded.verdicts, *repeated(loaded)))]
    if loaded.footer.get("budget") != stated:
        found.append("the budget: the footer states another one than the verdicts spent")
    return found


def leaps(ledgers: Iterable[Mapping[str, float]]) -> Iterator[str]:
    """Attempts at an error rate that only an attempt before them would have left: one that the report does not know."""
    names = {parsed(name) for ledger in ledgers for name in ledger}
    for purpose, attempt in sorted((purpose, attempt) for purpose, attempt in names if attempt is not None):
        if attempt > 1 and (purpose, attempt - 1) not in names:
            yield f"{entry(purpose, attempt)}: was paid for, and attempt {attempt - 1} is not in the report"
