"""The law p, step by step: order, ties, exact filters, and rows that a broken target might yield."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specqual.contract import Sampling
from specqual.reference.law import law
from specqual.reference.sampling import draw, filtered, order, point, processed, restrict

quick = settings(derandomize=True, deadline=None, max_examples=60)
weights = st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any)


def plain(logits: list[float], **sampling: Any) -> list[float]:
    return filtered(processed(np.array(logits), Sampling(**sampling), (), ()), Sampling(**sampling)).tolist()


def test_greedy_takes_the_lowest_of_the_largest_logits():
    assert plain([1.0, 3.0, 3.0, 2.0]) == [0, 1, 0, 0]


def test_greedy_ignores_every_filter():
    assert plain([1.0, 2.0], top_k=1, top_p=0.1, min_p=0.9) == plain([1.0, 2.0])


def test_top_k_keeps_exactly_k_and_the_lowest_ids_of_a_tie():
    assert np.flatnonzero(plain([2.0, 1.0, 2.0, 2.0], temperature=1.0, top_k=2)).tolist() == [0, 2]


def test_top_p_keeps_a_token_while_the_mass_before_it_is_below():
    p = law(4, 3, 2, 1)
    assert restrict(p, top_p=Fraction(7, 10)).tolist() == [Fraction(4, 7), Fraction(3, 7), 0, 0]
    assert restrict(p, top_p=Fraction(71, 100)).tolist() == law(4, 3, 2, 0).tolist()
    assert restrict(p, top_p=Fraction(1, 1000)).tolist() == [1, 0, 0, 0]


def test_top_p_breaks_ties_by_lowest_id():
    assert restrict(law(1, 2, 2, 1), top_p=Fraction(1, 3)).tolist() == [0, 1, 0, 0]
    assert restrict(law(1, 1, 1, 1), top_p=Fraction(1, 2)).tolist() == [Fraction(1, 2), Fraction(1, 2), 0, 0]


def test_min_p_counts_from_the_largest_probability_of_what_top_p_left():
    assert restrict(law(4, 2, 1), min_p=Fraction(1, 2)).tolist() == [Fraction(2, 3), Fraction(1, 3), 0]
    assert restrict(law(4, 2, 1), top_p=Fraction(1, 2), min_p=Fraction(1, 2)).tolist() == [1, 0, 0]


@given(counts=weights, top_k=st.integers(0, 6), tenths=st.integers(1, 10), least=st.integers(0, 10))
@quick
def test_filters_keep_the_most_probable_tokens_in_proportion(counts: list[int], top_k: int, tenths: int, least: int):
    p = law(*counts)
    kept = restrict(p, top_k=top_k, top_p=Fraction(tenths, 10), min_p=Fraction(least, 10))
    ids = [token for token in order(p) if kept[token]]
    assert kept.sum() == 1
    assert ids == [token for token in order(p)[: len(ids)] if p[token]]
    assert all(kept[a] * p[b] == kept[b] * p[a] for a in ids for b in ids)


@given(counts=weights, top_k=st.integers(0, 6), tenths=st.sampled_from([1, 3, 7, 9, 10]))
@quick
def test_floats_and_fractions_take_the_same_path(counts: list[int], top_k: int, tenths: int):
    exact = restrict(law(*counts), top_k=top_k, top_p=tenths / 10)
    floats = restrict(law(*counts).astype(float), top_k=top_k, top_p=tenths / 10)
    edges = np.cumsum(law(*counts)[order(law(*counts))])
    if all(abs(edge - Fraction(tenths, 10)) > Fraction(1, 10**9) for edge in edges):
        np.testing.assert_allclose(exact.astype(float), floats, atol=1e-12)


@pytest.mark.parametrize(
    ("sampling", "theirs"),
    [
        ({"temperature": 0.7}, [TemperatureLogitsWarper(0.7)]),
        ({"temperature": 1.0, "top_k": 5}, [TopKLogitsWarper(5)]),
        ({"temperature": 1.0, "top_p": 0.6}, [TopPLogitsWarper(0.6)]),
        ({"temperature": 1.0, "min_p": 0.2}, [MinPLogitsWarper(0.2)]),
        ({"temperature": 1.0, "repetition_penalty": 1.7}, [RepetitionPenaltyLogitsProcessor(1.7)]),
        (
            {"temperature": 1.4, "top_k": 9, "top_p": 0.8, "min_p": 0.15, "repetition_penalty": 0.6},
            [
                RepetitionPenaltyLogitsProcessor(0.6),
                TemperatureLogitsWarper(1.4),
                TopKLogitsWarper(9),
                TopPLogitsWarper(0.8),
                MinPLogitsWarper(0.15),
            ],
        ),
    ],
)
def test_each_step_equals_the_processors_of_transformers(sampling: dict[str, Any], theirs: list[Any]):
    logits = torch.randn(8, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2
    prompt, output = (3, 4), (4, 7, 7)
    ids = torch.tensor([[*prompt, *output]])
    for row in logits:
        scores = row[None].clone()
        for step in theirs:
            scores = step(ids, scores)
        mine = filtered(processed(row.numpy(), Sampling(**sampling), prompt, output), Sampling(**sampling))
        np.testing.assert_allclose(mine, scores.softmax(-1)[0].numpy(), atol=1e-12)


def test_penalties_count_the_output_and_repetition_the_prompt_as_well():
    sampling = Sampling(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5)
    logits = processed(np.array([4.0, -4.0, 4.0, 4.0, 4.0]), sampling, (0, 1), (2, 3, 3))
    assert logits.tolist() == [2.0, -8.0, 2.0 - 1.5, 2.0 - 2.0, 4.0]


def test_bias_comes_before_penalties_and_forbidden_ids_after_them():
    sampling = Sampling(repetition_penalty=2.0, logit_bias=((0, -3.0), (1, 9.0)))
    assert processed(np.array([1.0, 1.0, 1.0]), sampling, (0,), (), forbidden=(1,)).tolist() == [-4.0, -np.inf, 1.0]


def test_the_callers_logits_stay_as_they_were():
    logits = np.zeros(3)
    processed(logits, Sampling(logit_bias=((0, 1.0),)), (), (), forbidden=(2,))
    assert not logits.any()


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1.0, 1e6])
@pytest.mark.parametrize(
    "row",
    [
        [np.nan] * 4,
        [-np.inf] * 4,
        [np.nan, 1.0, np.nan, 0.0],
        [np.inf, 0.0, np.inf, np.nan],
        [1e308, -1e308, 0.0, 1.0],
        [-np.inf, -np.inf, 5.0, -np.inf],
    ],
)
def test_a_broken_row_still_yields_a_law_on_allowed_tokens(row: list[float], temperature: float):
    sampling = Sampling(temperature=temperature, repetition_penalty=1e-300, top_p=0.9)
    p = filtered(processed(np.array(row), sampling, (1,), (1,), forbidden=(2,)), sampling)
    assert p[2] == 0
    assert p.sum() == pytest.approx(1)
    assert (p >= 0).all()
    assert draw(p, 0.999999) != 2


def test_a_draw_is_the_lowest_id_whose_cumulative_mass_exceeds_the_number():
    p = law(0, 1, 2, 0, 1)
    assert [draw(p, Fraction(k, 8)) for k in range(8)] == [1, 1, 2, 2, 2, 2, 4, 4]


def test_a_draw_never_yields_a_token_of_probability_zero():
    p = np.array([0.0, 0.1, 0.2, 0.7 - 1e-9, 0.0])  # as if rounding had lost some mass
    assert draw(p, 0.0) == 1
    assert draw(p, 1 - 2.0**-53) == 3


@given(counts=weights, number=st.fractions(0, 1).filter(lambda u: u < 1))
@quick
def test_a_draw_lands_in_the_cell_of_its_token(counts: list[int], number: Fraction):
    p = law(*counts)
    token = draw(p, number)
    assert sum(p[:token]) <= number < sum(p[: token + 1])


def test_a_point_law_keeps_the_number_type():
    assert point(1, law(1, 2)).tolist() == [0, Fraction(1)]
    assert point(1, np.array([0.5, 0.5])).dtype == np.float64
