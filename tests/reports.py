"""Reports for tests: written as a run writes them, rewritten as nobody should."""

from dataclasses import replace
from pathlib import Path

from specqual import fixtures
from specqual.conformance.lab import Run
from specqual.conformance.report import ROOT, Report, canonical, sealed
from specqual.contract import Setup

HOSTILE = '<script>alert(1)</script> & "quotes" \x00\ud800'


def result(clause="GE-1", verdict="EXACT", **changes):
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
        "bitwise": False,
        "history": "",
    }
    evidence = {"kind": "greedy", "cases": [case | changes], "guards": [], "notes": {}}
    detail = "1 tokens of 1 outputs, regret zero everywhere"
    line = {"clause": clause, "verdict": verdict, "detail": detail, "delta": None, "evidence": evidence}
    line |= {"proof": "", "replay": "pytest", "seconds": 0.1, "waiver": None, "spent": {}}
    return line | {"claims": {"engine": HOSTILE}}


def written(folder: Path, *results, status=0, **changes) -> Path:
    """A finished report of these results; `changes` are fields of the Run."""
    run = Run("toy:make", lambda setup: None, Setup(target=fixtures.path("table/chain")))  # type: ignore[arg-type]
    report = Report(replace(run, **changes), folder)
    for one in results:
        report.add(one)
    report.close(status)
    return folder


def lines(folder: Path) -> list[str]:
    return (folder / "report.jsonl").read_text().splitlines(keepends=True)


def rewrite(folder: Path, kept: list[str]) -> None:
    (folder / "report.jsonl").write_text("".join(kept))


def resealed(folder: Path, contents: list[dict]) -> None:
    before, kept = ROOT, []
    for content in contents:
        line = sealed({name: value for name, value in content.items() if name != "hash"}, before)
        before = line["hash"]
        kept.append(canonical(line) + "\n")
    rewrite(folder, kept)
