"""Pages that are rendered from code say what the code says."""

from pathlib import Path

from specqual.conformance.spec import render

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_the_specification_page_is_the_rendering_of_the_clause_table() -> None:
    assert (DOCS / "SPEC.md").read_text() == render(), "run: python -m specqual.conformance.spec > docs/SPEC.md"
