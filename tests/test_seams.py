"""What a verdict says of how much of the decoder was to be seen: nothing but events, scores, or everything."""

from collections.abc import Mapping

import pytest

from specqual.conformance.check import run
from specqual.conformance.lab import Run
from specqual.decoder import make
from specqual.mutants.levels import Level, seen_at
from specqual.mutants.pairs import HYBRID16

SEEN: Mapping[str, tuple[str, str, str]] = {
    "GE-1": ("events alone", "scores", "scores and a trace"),
    "GE-4": ("", "", "scores and scripted drafts and a trace"),
    "GE-5": ("events alone", "scores", "scores"),
    "GE-7": ("", "scores", "scores"),
    "FIN-1": ("events alone", "events alone", "a trace"),
    "FIN-3": ("events alone", "events alone", "scripted drafts and a trace"),
    "FIN-4": ("events alone", "events alone", "events alone"),
}


@pytest.mark.parametrize("level", list(Level))
def test_a_clause_says_through_which_seams_it_looked(level: Level):
    found = {r.clause: r for r in run(Run("engine", seen_at(level, make), HYBRID16.setup), list(SEEN))}
    for name, seams in SEEN.items():
        result, wanted = found[name], seams[list(Level).index(level)]
        assert result.verdict in (("EXACT", "HOLDS", "TIE-EXPLAINED") if wanted else ("SKIPPED",)), result.detail
        assert not wanted or result.detail.endswith(f"; seen by {wanted}"), result.detail


def test_ties_are_adjudicated_in_the_engines_own_scores_where_it_offers_them():
    def said(level: Level) -> tuple[str, str]:
        (found,) = run(Run("engine", seen_at(level, make), HYBRID16.setup), ["GE-1"])
        return found.verdict, found.detail

    assert "could not be seen from outside: acceptances, rejections" in said(Level.L1)[1]
    verdict, detail = said(Level.L2)
    assert verdict == "TIE-EXPLAINED" and "in the engine's own scores" in detail
    assert said(Level.L1)[0] == verdict and "own scores" not in said(Level.L1)[1]
