"""Runs of the conformance suite from a test, in this process, and what their reports say."""

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import specqual.conformance
from specqual import fixtures
from specqual.conformance.audit import audit
from specqual.mutants.pairs import Pair

CONFORMANCE = Path(specqual.conformance.__file__).parent


def options(pair: Pair) -> list[str]:
    """The command line that asks for these fixtures, or for checkpoints at absolute paths."""
    draft = "none" if pair.draft is None else str(located(pair.draft))
    free = [word for name, value in pair.options for word in ("--option", f"{name}={value}")]
    return ["--target", str(located(pair.target)), "--draft", draft, *free]


def located(name: str) -> Path:
    return Path(name) if Path(name).is_absolute() else fixtures.path(name)


def results(decoder: str, pair: Pair, clauses: Sequence[str], seed: int = 0, *more: str) -> dict[str, dict[str, Any]]:
    """Run these clauses, chapters or prefixes ([] means the quick profile): clause id -> its line of report.jsonl."""
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as shown, redirect_stderr(shown):
        wanted = [option for clause in clauses for option in ("--clause", clause)]
        arguments = [*options(pair), *wanted, "--decoder", decoder, "--seed", str(seed), "--report", folder, *more]
        status = pytest.main([str(CONFORMANCE), "-q", "-p", "no:cacheprovider", *arguments])
        report = Path(folder) / "report.jsonl"
        if not report.exists():
            raise RuntimeError(f"exit status {status} and no report: {shown.getvalue()}")
        lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
        assert audit(Path(folder)).differences == ()
    return {line["clause"]: line for line in lines if "clause" in line}
