"""Answers that no decoder may give are violations that name the field; what is not offered hides nothing else."""

from dataclasses import replace

import pytest

from specqual.conformance.chapter import Result
from specqual.conformance.check import run
from specqual.conformance.lab import Run
from specqual.contract import Make, Setup, Tokens
from specqual.decoder import Engine, make
from specqual.mutants.pairs import DFLASH2
from specqual.mutants.planting import black_box


def decided(factory: Make, clause: str) -> Result:
    (found,) = run(Run("wrong", factory, DFLASH2.setup), [clause])
    return found


def altered(method: str, change):
    """The optimised decoder; `change` is made to whatever this method returns."""

    def factory(setup: Setup) -> Engine:
        decoder = make(setup)
        sound = getattr(decoder, method)
        setattr(decoder, method, lambda *given: change(sound(*given)))
        return decoder

    return factory


@pytest.mark.parametrize("field", ["logprob", "best", "runner_up"])
def test_scores_of_another_length_violate_the_clause_about_scores(field: str):
    short = altered("score", lambda scored: replace(scored, **{field: getattr(scored, field)[:-1]}))
    found = decided(short, "GE-7")
    assert found.verdict == "VIOLATED" and found.detail.startswith(f"{field}: numbers for"), found.detail


@pytest.mark.parametrize("token", [-1, 10**6])
def test_a_draft_that_is_no_token_violates_the_clause_about_acceptance(token: int):
    def strange(rounds):
        return tuple(replace(r, proposals=(*r.proposals[:-1], token)) if r.proposals else r for r in rounds)

    found = decided(altered("rounds", strange), "TEL-5")
    assert found.verdict == "VIOLATED" and f"proposals: {token} is no token" in found.detail, found.detail


def test_an_output_without_a_token_violates_the_clause_about_long_outputs():
    silent = altered("step", lambda events: [event for event in events if not isinstance(event, Tokens)])
    found = decided(black_box(silent), "LAW-7")
    assert found.verdict == "VIOLATED" and "samples: sample 0 ended without a token" in found.detail, found.detail


def test_laws_of_scripted_drafts_are_kept_where_no_other_target_can_be_loaded():
    def tables_only(setup: Setup) -> Engine:
        if setup.draft not in (None, DFLASH2.setup.draft):
            raise ValueError("no such drafter here")
        return make(setup)

    found = decided(tables_only, "LAW-5")
    assert found.verdict == "EXACT" and found.detail.startswith("4 laws in"), found.detail
    assert "seen by scripted drafts alone: the decoder does not load" in found.detail
