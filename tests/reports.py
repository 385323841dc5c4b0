"""Reports for tests: written as a run writes them, rewritten as nobody should."""

from dataclasses import replace
from pathlib import Path

from specqual import fixtures
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.evidence import Evidence, decide
from specqual.conformance.facts import plain
from specqual.conformance.lab import Run
from specqual.conformance.merge import chained
from specqual.conformance.proof import prove
from specqual.conformance.report import Report, canonical
from specqual.contract import Claims, Greedy, Limits, Method, Rule, SeedContract, Setup

HOSTILE = '<script>alert(1)</script> & "quotes" \x00\ud800'
RUN = Run("toy:make", lambda setup: None, Setup(target=fixtures.path("table/chain")))  # type: ignore[arg-type, return-value]
CLAIMS = Claims(
    engine=HOSTILE,
    version="1",
    rule=Rule.RATIO,
    method=Method.NONE,
    greedy=Greedy(bitwise=True),
    sampling=frozenset({"ignore_eos"}),
    seed=SeedContract.ALWAYS,
    limits=Limits(vocab_size=8, max_context=64, max_batch=1),
    dtype="float64",
)
FEWEST = {"GE-1": 4, "GE-2": 2, "GE-3": 1, "GE-5": 4, "GE-6": 6}  # cases that these clauses gather under quick
GUARDS = {"GE-1": ["outputs across a page's edge"], "GE-5": ["requests served beside another"]}


def result(clause="GE-1", verdict="EXACT", **changes):
    """A line on one clause as a run writes it; `changes` are made to its first case, and nothing follows from them."""
    case = {
        "label": HOSTILE,
        "prompt": [1],
        "max_tokens": 1,
        "ending": [],
        "output": [2],
        "argmax": [2],
        "logprob": [-0.5],
        "best": [-0.5],
        "runner_up": [-2.0],
        "envelope": 0.0,
        "plain": None,
        "against": "",
        "bitwise": True,
        "history": "",
    }
    cases = [case | changes, *(case for _ in range(1, FEWEST.get(clause, 1)))]
    guards = [{"hazard": hazard, "seen": 1, "needed": 1} for hazard in GUARDS.get(clause, ())]
    evidence = {"kind": "greedy", "cases": cases, "guards": guards, "notes": {}}
    detail = f"{len(cases)} tokens of {len(cases)} outputs, regret zero everywhere"
    line = {"clause": clause, "verdict": verdict, "detail": detail, "delta": None, "evidence": evidence}
    line |= {"proof": "", "replay": RUN.replay(clause), "seconds": 0.1, "waiver": None, "spent": {}}
    return line | {"claims": plain(CLAIMS), "offers": []}


def violated(clause="GE-1", **more):
    """A line on a clause that is violated, with its proof; `more` are fields of the line."""
    line = result(clause, "VIOLATED", output=[3], logprob=[-9.0])
    decision = decide(line["evidence"])
    line |= {"detail": decision.detail, "proof": prove(CLAUSES[clause], line["evidence"], decision, line["replay"])}
    return line | more


def skipped(clause, reason):
    """A line on a clause that is skipped for this reason."""
    return result(clause, "SKIPPED") | {"detail": reason, "evidence": Evidence("occurrences").json()}


def written(folder: Path, *results, status=0, **changes) -> Path:
    """A finished report of these results; `changes` are fields of the Run."""
    report = Report(replace(RUN, **changes), folder, [one["clause"] for one in results])
    for one in results:
        report.add(one)
    report.close(status)
    return folder


def lines(folder: Path) -> list[str]:
    return (folder / "report.jsonl").read_text().splitlines(keepends=True)


def rewrite(folder: Path, kept: list[str]) -> None:
    (folder / "report.jsonl").write_text("".join(kept))


def resealed(folder: Path, contents: list[dict]) -> None:
    rewrite(folder, [canonical(line) + "\n" for line in chained(contents)])
