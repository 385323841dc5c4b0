"""Black boxes: what only their tokens tell is enough for the weakest known faults, and accuses nobody else."""

from random import Random

import numpy as np
import pytest

from specqual import decoder, fixtures, reference
from specqual.conformance.chapter import Result
from specqual.conformance.check import run
from specqual.conformance.contexts import drafter_of, leverage, telling
from specqual.conformance.judge import Judge
from specqual.conformance.lab import Run
from specqual.contract import Make, Sampling, Setup
from specqual.mutants import drawing, long, verification
from specqual.mutants.planting import black_box

SETUP = Setup(target=fixtures.path("nano/dense"), draft=fixtures.path("nano/dense-dflash2"))


def decided(make: Make, *clauses: str) -> list[Result]:
    return list(run(Run("black box", black_box(make), SETUP), clauses))


@pytest.mark.parametrize("fault", [drawing.m02b, verification.m04b], ids=lambda fault: fault.__name__)
def test_a_fault_of_verification_ends_the_run_early_and_names_the_prefix(fault):
    (found,) = decided(fault, "LAW-6")
    assert found.verdict == "VIOLATED", found.detail
    cases = found.evidence["cases"]
    assert sum(sum(case["counts"]) for case in cases) < sum(case["planned"] for case in cases)
    assert "behind [" in found.detail and all(case["trajectory"][0] == [0, 0.0] for case in cases)


def test_the_optimised_decoder_is_not_accused_and_the_smallest_visible_bias_is_stated():
    six, seven = decided(decoder.make, "LAW-6", "LAW-7")
    assert six.verdict == "HOLDS" and "would have been seen" in six.detail, six.detail
    assert seven.verdict == "INCONCLUSIVE" and "more requests would settle it" in seven.detail, seven.detail
    assert six.spent.keys() >= {"LAW-6 #1"} and seven.spent.keys() == {"LAW-7 #1"}


def test_a_fault_of_long_drafts_shows_in_long_outputs():
    (found,) = decided(long.m04h, "LAW-7")
    assert found.verdict == "VIOLATED", found.detail
    assert "lean to the likeliest token by -0." in found.detail


def test_prompts_of_great_leverage_let_drafts_be_accepted_and_corrections_go_wrong():
    judge = Judge.of(SETUP.target)
    q, sampling = drafter_of(judge, SETUP.draft), Sampling(temperature=0.8, top_k=8)
    best, *_, worst = telling(judge, q, sampling, Random(1), 16, 16)

    def strength(request):
        first = judge.law(request, ())
        token = int(first.argmax())
        return first[token] * leverage(judge.law(request, (token,)), q(request, (token,)))

    assert strength(best) > 10 * strength(worst)


def test_a_certain_draft_and_an_unknown_one_have_a_leverage_too():
    flat, certain = [[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]
    assert leverage(np.array(flat), None) == 0.75 and leverage(np.array(certain), None) == 0.0
    assert 0 < leverage(np.array(flat), np.array(certain)) < 0.01


def test_reference_on_a_table_is_judged_without_a_drafter_and_its_many_outputs_need_more_samples():
    (found,) = run(Run("black box", black_box(reference.make), Setup(target=fixtures.path("table/chain"))), ["LAW-6"])
    assert found.verdict == "INCONCLUSIVE" and "bias is only known to be at most 0.5" in found.detail, found.detail
