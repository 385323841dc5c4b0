"""Cells of random numbers: every edge of real code is found, wherever it is, and probed on both sides."""

import json
from fractions import Fraction
from math import nextafter

import pytest

from specqual import reference
from specqual.conformance.cells import GRID, Exploration, Seen, split
from specqual.conformance.codelaw import DRAFTERS, LAWS, Script, code_law, table, target_joint
from specqual.contract import Key, Purpose, Request, Rule, Sampling, Setup

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
    cells = split(probe, [HALF], GRID)
    assert first(cells) == [0.0, HALF]
    assert {nextafter(HALF, 0.0), HALF} <= set(asked) and len(asked) == 6


@pytest.mark.parametrize("edges", [[THIRD], [THIRD, HALF], [0.1, 0.2, 0.30000001], [1 - TINY], [TINY]])
@pytest.mark.parametrize("hints", [[], [HALF], [THIRD + 3 * GRID], [THIRD - TINY, 0.7]])
def test_edges_that_nothing_hints_at_are_found_wherever_two_probes_differ(edges, hints):
    cells = split(outcome(*edges)[0], hints, GRID)
    assert first(cells) == pytest.approx([0.0, *edges], abs=2 * GRID)
    assert sum(cell.high - cell.low for cell in cells) == 1
    assert all(cell.low <= cell.number < cell.high for cell in cells)
    assert [cell.seen.samples for cell in cells] == [((count,),) for count in range(len(edges) + 1)]


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
