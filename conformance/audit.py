"""Verification of a finished report: every verdict derived again from the evidence beside it."""

from dataclasses import dataclass
from pathlib import Path

from .clauses import CLAUSES, status_of
from .evidence import MalformedEvidence, decide
from .report import BadReport, Loaded, load
from .statistics.budget import ALPHA, Overspent, total
from .verdicts import Profile, Verdict

UNDECIDED = frozenset({Verdict.SKIPPED, Verdict.ERROR})  # no evidence speaks; the reason stands in the line
WAIVER = {"clause", "reason", "link", "expires"}


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of a report: how many verdicts were derived again, and what does not follow."""

    loaded: Loaded
    derived: int
    undecided: int
    differences: tuple[str, ...]


def audit(directory: Path) -> Audit:
    """Load a report and derive its verdicts again; BadReport if it is truncated, altered or malformed."""
    loaded = load(directory)
    derived = undecided = 0
    differences: list[str] = []
    try:
        profile = Profile(loaded.header.get("profile"))
    except ValueError:
        raise BadReport("line 1: has no known profile") from None
    seen: set[str] = set()
    for number, line in enumerate(loaded.verdicts, start=2):
        clause, verdict = line.get("clause"), line.get("verdict")
        if clause not in list(CLAUSES) or verdict not in list(Verdict):
            raise BadReport(f"line {number}: has no known clause and verdict")
        if clause in seen:
            raise BadReport(f"line {number}: {clause} stands twice")
        seen.add(str(clause))
        evidence, waiver = line.get("evidence"), line.get("waiver")
        if not isinstance(evidence, dict):
            raise BadReport(f"line {number}: {clause}: has no evidence")
        if (verdict == Verdict.WAIVED) != (isinstance(waiver, dict) and set(waiver) == WAIVER):
            differences.append(
                f"{clause}: the report says {verdict}, {'without' if verdict == Verdict.WAIVED else 'with'} a waiver"
            )
        if verdict in UNDECIDED:
            undecided += 1
            if evidence.get("cases") or evidence.get("guards"):
                differences.append(f"{clause}: the report says {verdict}, yet it holds evidence to decide by")
            continue
        try:
            decision = decide(evidence)
        except MalformedEvidence as error:
            raise BadReport(f"line {number}: {clause}: {error}") from None
        stated = Verdict.VIOLATED if verdict == Verdict.WAIVED else verdict
        derived += 1
        if decision.verdict != stated or decision.detail != line.get("detail") or decision.delta != line.get("delta"):
            differences.append(f"{clause}: the report says {verdict}, its evidence says {decision}")
    differences += overspent(loaded)
    status = status_of(loaded.verdicts, profile)
    if loaded.footer.get("status") != status:
        differences.append(
            f"exit status: the report says {loaded.footer.get('status')}, its verdicts say {int(status)}"
        )
    return Audit(loaded, derived, undecided, tuple(differences))


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
    try:
        stated = {"alpha": ALPHA, "spent": total(line["spent"] for line in loaded.verdicts)}
    except Overspent as error:
        return [*found, str(error)]
    if loaded.footer.get("budget") != stated:
        found.append("the budget: the footer states another one than the verdicts spent")
    return found
