"""Cells of random numbers: every edge of real code is found, wherever it is, and probed on both sides."""

import json
from dataclasses import replace
from fractions import Fraction
from math import nextafter

import pytest

from specqual import reference
from specqual.conformance.cells import GRID, Exploration, Seen, split
from specqual.conformance.codelaw import DRAFTERS, LAWS, Script, code_law, table, target_joint
from specqual.conformance.coupling import partings
from specqual.conformance.drive import serve
from specqual.conformance.kinds import cells
from specqual.conformance.kinds.draws import decide
from specqual.conformance.lab import Lab, Run, taped
from specqual.contract import Key, Purpose, Request, Rule, Sampling, Setup
from specqual.decoder import make
from specqual.mutants.pairs import DFLASH2
from specqual.reference.rng import Counter

HALF, THIRD, TINY = 0.5, 1 / 3, 1e-9


def outcome(*edges):
    """A number's outcome is how many of the edges it has reached; the probed numbers are written down."""
    asked = []

    def probe(number):
        asked.append(number)
        return Seen((), ((sum(number >= edge for edge in edges),),), {})

    return probe, asked


def first(cells):
    return [float(cell.low) for cell in cells]


def test_an_edge_where_it_is_expected_is_probed_by_the_nearest_doubles_and_costs_no_more():
    probe, asked = outcome(HALF)
    found = split(probe, [HALF], GRID)
    assert first(found) == [0.0, HALF]
    assert {nextafter(HALF, 0.0), HALF} <= set(asked) and len(asked) == 6


@pytest.mark.parametrize("edges", [[THIRD], [THIRD, HALF], [0.1, 0.2, 0.30000001], [1 - TINY], [TINY]])
@pytest.mark.parametrize("hints", [[], [HALF], [THIRD + 3 * GRID], [THIRD - TINY, 0.7]])
def test_edges_that_nothing_hints_at_are_found_wherever_two_probes_differ(edges, hints):
    found = split(outcome(*edges)[0], hints, GRID)
    assert first(found) == pytest.approx([0.0, *edges], abs=2 * GRID)
    assert sum(cell.high - cell.low for cell in found) == 1
    assert all(cell.low <= cell.number < cell.high for cell in found)
    assert [cell.seen.samples for cell in found] == [((count,),) for count in range(len(edges) + 1)]


def test_a_hint_without_an_edge_is_no_edge():
    assert first(split(outcome()[0], [THIRD, HALF], GRID)) == [0.0]


def test_an_edge_near_its_hint_takes_a_few_probes_and_one_far_from_it_at_most_a_search_by_halves():
    for off, most in ((2 * GRID, 14), (1e-9, 60), (0.1, 100)):
        probe, asked = outcome(THIRD + off)
        split(probe, [THIRD], GRID)
        assert len(asked) <= most, off


def test_the_law_is_a_sum_over_cells_of_all_numbers_that_were_asked_for():
    one, two = (Key(0, 0, 1, position, Purpose.BONUS) for position in (1, 2))

    def run(numbers):  # the second number is only asked for, and has another edge, behind a small first one
        u, v = (numbers.get(key, HALF) for key in (one, two))
        if u >= 0.25:
            return Seen((one,), ((1,),), {})
        return Seen((one, two), ((0, int(v >= 0.75)),), {})

    found = Exploration(run, lambda key, seen: [Fraction(1, 4)]).explore()
    quarter = Fraction(1, 4)
    assert found.law == pytest.approx({((1,),): 3 * quarter, ((0, 0),): 3 * quarter**2, ((0, 1),): quarter**2})
    assert (found.edges, found.off, len(found.leaves)) == (2, pytest.approx(0.5), 3)


def decoder(folder):
    laws = {suffix: numbers.split() for suffix, numbers in LAWS.items()}
    config = {"model_type": "specqual_table", "vocab_size": 4, "context": 1, "laws": laws}
    (folder / "config.json").write_text(json.dumps(config))
    return reference.make(Setup(target=folder, draft_length=2))


def test_an_output_that_ends_early_counts_as_what_it_is(tmp_path):
    request, p = Request(prompt=(3,), max_tokens=2, sampling=Sampling(temperature=1.0)), table(LAWS, 3)
    found = code_law(decoder(tmp_path), request, Rule.RATIO, p, Script(DRAFTERS["equal"], 2))
    assert found.law == {((0, 0),): Fraction(1, 4), ((0, 1),): Fraction(1, 4), ((0, 2),): Fraction(1, 2)}


@pytest.mark.parametrize("script", [Script(DRAFTERS["far"], 1, 4), Script(DRAFTERS["narrow"], 2, 1)])
def test_the_law_does_not_depend_on_hints_or_on_drafts(tmp_path, script):
    request, p = Request(prompt=(3,), max_tokens=3, sampling=Sampling(temperature=1.0)), table(LAWS, 3)
    wrong = table({"": "1/8 3/8 3/8 1/8"}, 3)
    right = target_joint(p, request)
    for hints in (p, wrong):
        found = code_law(decoder(tmp_path), request, Rule.RATIO, hints, script)
        assert found.law == pytest.approx(right, abs=1e-12)
        assert found.off < 1e-12 or hints is wrong


def coupled(dtype):
    """What two decoders answer on one tape: the reference in float64, and the optimised one in this dtype."""
    lab, tape = Lab(Run("tests", make, replace(DFLASH2.setup, dtype=dtype))), Counter()
    request = Request(prompt=(5, 6, 7, 8), max_tokens=32, n=2, sampling=Sampling(temperature=1.0), seed=3)
    answers = []
    for one in (reference.make(DFLASH2.setup), lab.decoder):
        with taped(one, tape):
            answers.append(serve(one, [request])[0])
    return lab, *answers, tape.uniform


def test_outputs_that_rounding_parts_part_at_a_number_near_an_edge():
    lab, right, own, number = coupled("bfloat16")
    found = list(partings(lab, right, own, number))
    assert found
    for one in found:
        assert one.off is not None and one.off <= one.allowed < 1
        assert f"sample {one.sample} parts at position {one.position}: " in str(one)
    path = {"slack": 1e-9, "decisions": [], "partings": [one.case() for one in found]}
    assert decide([path]).verdict == "TIE-EXPLAINED"


def test_an_output_that_another_draft_leads_away_parts_at_the_number_of_that_draft():
    lab, right, own, number = coupled("float64")
    assert right.samples == own.samples and not list(partings(lab, right, own, number))
    place, r = next((i, r) for i, r in enumerate(own.rounds) if r.proposals and r.q[0] is not None)
    other = next(token for token in r.q[0].ids if token != r.proposals[0])
    rounds = (*own.rounds[:place], replace(r, proposals=(other, *r.proposals[1:])), *own.rounds[place + 1 :])
    (found,) = partings(lab, right, replace(own, rounds=rounds), number)
    assert (found.sample, found.position) == (r.sample, r.start + 1) and not found.off <= found.allowed
    (decision,) = found.decisions
    u = number(Key(3, r.sample, r.start + 1, r.start + 1, Purpose.DRAFT))
    assert (decision["purpose"], decision["token"], decision["u"]) == ("draft", other, u)
    assert decide([{"slack": 1e-9, "decisions": [decision]}]).verdict == "VIOLATED"


@pytest.mark.parametrize("strange", ["greedy draft", "another number of drafts", "another acceptance"])
def test_outputs_that_part_by_what_rounding_is_not_seen_to_do_settle_nothing(strange: str):
    lab, right, own, number = coupled("bfloat16")
    place, r = next((i, r) for i, r in enumerate(right.rounds) if len(r.proposals) > 1 and r.accepted)
    rounds = list(right.rounds)
    if strange == "greedy draft":  # the reference's own would have to be a tie of this one
        worst = max(range(lab.judge.target.vocab_size), key=lambda t: drafted(lab, own.request, right, place, t))
        rounds[place] = replace(r, q=(None,) * len(r.q))
        ours = [*rounds[:place], replace(rounds[place], proposals=(worst, *r.proposals[1:])), *rounds[place + 1 :]]
    elif strange == "another number of drafts":
        ours = [*rounds[:place], replace(r, proposals=r.proposals[:-1], q=r.q[:-1], accepted=0), *rounds[place + 1 :]]
    else:
        ours = [*rounds[:place], replace(r, accepted=r.accepted - 1), *rounds[place + 1 :]]
    (found,) = partings(lab, replace(right, rounds=tuple(rounds)), replace(right, rounds=tuple(ours)), number)
    decision = decide([{"slack": 1e-9, "decisions": [], "partings": [found.case()]}])
    assert decision.verdict == "INCONCLUSIVE" and str(found) in decision.detail


def drafted(lab, request, answer, place, token):
    """How much worse than the reference's own choice a first draft of this round would be (nats)."""
    r = answer.rounds[place]
    before = [t for earlier in answer.rounds_of(r.sample) if earlier.start < r.start for t in earlier.committed]
    r = replace(r, proposals=(token,))
    return lab.drafter.greedy((*request.prompt, *before), r, lab.drafter.measured[0].nats)["regret"][0]


def case(found, **fields):
    law = [[[[0]], 0.5], [[[1]], 0.5]]
    return {"what": "a law", "expected": law, "found": found, "cells": 2, "edges": 1, "tolerance": 1e-12} | fields


@pytest.mark.parametrize(
    ("found", "fields", "verdict"),
    [
        ([[[[0]], 0.5], [[[1]], 0.5]], {}, "EXACT"),
        ([[[[0]], 0.5 + 1e-13], [[[1]], 0.5 - 1e-13]], {}, "EXACT"),
        ([[[[0]], 0.5 + 1e-11], [[[1]], 0.5 - 1e-11]], {}, "VIOLATED"),
        ([[[[0]], 0.5], [[[1]], 0.5], [[[2]], 1e-17]], {}, "VIOLATED"),  # impossible, and seen for one number
        ([[[[0]], 0.5 + 1e-4], [[[1]], 0.5 - 1e-4]], {"tolerance": 1e-3, "wanted": 0.1}, "HOLDS"),
        ([[[[0]], 0.5 + 1e-4], [[[1]], 0.5 - 1e-4]], {"tolerance": 1.0, "wanted": 1e-5}, "INCONCLUSIVE"),
        ([[[[0]], 0.5], [[[1]], 0.5 - 1e-17], [[[2]], 1e-17]], {"tolerance": 1e-3, "wanted": 0.1}, "HOLDS"),
    ],
)
def test_a_measured_law_is_right_within_its_tolerance_and_nothing_impossible_comes(found, fields, verdict):
    assert cells.decide([case(found, **fields)]).verdict == verdict


def test_cells_that_do_not_fill_the_cube_are_no_evidence():
    with pytest.raises(ValueError, match="found: masses add up to 0.5"):
        cells.decide([case([[[[0]], 0.5]])])
