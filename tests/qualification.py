"""Runs of the conformance suite from a test, in this process, and what their reports say."""

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import specqual.conformance
from specqual import fixtures

CONFORMANCE = Path(specqual.conformance.__file__).parent


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter, by fixture name; `draft` None for none."""

    target: str
    draft: str | None = None

    @property
    def options(self) -> list[str]:
        draft = "none" if self.draft is None else str(fixtures.path(self.draft))
        return ["--target", str(fixtures.path(self.target)), "--draft", draft]


def results(decoder: str, pair: Pair, clauses: Sequence[str], seed: int = 0, *more: str) -> dict[str, dict[str, Any]]:
    """Run these clauses, chapters or prefixes ([] means the quick profile): clause id -> its line of report.jsonl."""
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as shown, redirect_stderr(shown):
        wanted = [option for clause in clauses for option in ("--clause", clause)]
        options = [*pair.options, *wanted, "--decoder", decoder, "--seed", str(seed), "--report", folder, *more]
        status = pytest.main([str(CONFORMANCE), "-q", "-p", "no:cacheprovider", *options])
        report = Path(folder) / "report.jsonl"
        if not report.exists():
            raise RuntimeError(f"exit status {status} and no report: {shown.getvalue()}")
        lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    return {line["clause"]: line for line in lines if "clause" in line}
