"""Calibration: a true null is rejected as seldom as promised, a bias as soon as theory says, resumed or not."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, inf, lgamma, log

import numpy as np
import pytest
from scipy.stats import binom

from specqual.conformance import statistics
from specqual.conformance.kinds import acceptance
from specqual.conformance.statistics import Bets, Mixture, State, from_json, to_json, update

RUNS = 1000
ALPHAS = (0.05, 0.01)
UNIFORM = np.full(16, 1 / 16)
SKEWED = np.array([0.5, 0.25, 0.1, 0.08, 0.04, 0.02, 0.007, 0.002, 0.001, 0.0])


def as_rare_as_promised(rejections: int, alpha: float, runs: int = RUNS) -> bool:
    """Whether so many rejections, or more, are not too unlikely at a rate of alpha."""
    return bool(binom.sf(rejections - 1, runs, alpha) > 1e-3)


def singles(values: Sequence[float]) -> list[tuple[float]]:
    return [(value,) for value in values]


def rejected(finals: Sequence[State], alpha: float) -> int:
    return sum(statistics.rejects(state, alpha) for state in finals)


def halves(variation: float, law: np.ndarray) -> np.ndarray:
    """The law nearest to null at this total variation, seen by chi-square: every other cell of a uniform law up."""
    return law * (1 + 2 * variation * np.where(np.arange(len(law)) % 2, -1, 1))


def gains(rng: np.random.Generator, requests: int, length: int = 1) -> np.ndarray:
    """f(x) - Σ p f under a true null [RUNS, requests, length]; law, f and context change at every token of four."""
    p = rng.dirichlet(np.ones(4), (RUNS, requests, length))
    f = rng.random((RUNS, requests, length, 4)) ** 2
    u = rng.random((RUNS, requests, length, 1))
    token = (np.cumsum(p, -1)[..., :-1] < u).sum(-1)
    return np.take_along_axis(f, token[..., None], -1)[..., 0] - (p * f).sum(-1)


# fixed samples


@pytest.mark.parametrize("law", [UNIFORM, SKEWED], ids=["uniform", "skewed"])
@pytest.mark.parametrize("samples", [100, 1000])
def test_a_g_test_rejects_a_true_null_no_oftener_than_it_may(law, samples):
    draws = np.random.default_rng(1).multinomial(samples, law, RUNS)
    p_values = np.array([statistics.g_test(law, counts).p_value for counts in draws.tolist()])
    for alpha in ALPHAS:
        assert as_rare_as_promised(int((p_values < alpha).sum()), alpha), alpha


@pytest.mark.parametrize(("samples", "p"), [(1000, 0.5), (1000, 0.1), (1000, 0.01), (1000, 0.005), (20_000, 0.0005)])
def test_the_size_of_a_g_test_by_enumeration_is_near_the_error_rate_that_it_states(samples, p):
    counts = range(max(0, int(samples * p - 300)), int(samples * p + 300))
    p_values = np.array([statistics.g_test([p, 1 - p], [k, samples - k]).p_value for k in counts])
    chances = binom.pmf(counts, samples, p)
    for alpha in (0.05, 0.01, 1e-4, 1e-6):
        assert 0.1 * alpha < chances[p_values < alpha].sum() < 1.4 * alpha, alpha


def test_a_g_test_pools_what_is_rare_by_the_law_and_never_what_is_impossible():
    counts = [50, 25, 10, 8, 4, 2, 1, 0, 0]
    assert statistics.g_test(SKEWED, [*counts, 0]).degrees == 4
    assert statistics.g_test(SKEWED, [*counts, 1]).p_value == 0.0
    assert statistics.g_test([0.5, 0.5], [2, 2]).degrees == 0  # too few to tell


def test_the_noncentralities_that_a_plan_needs_are_those_of_the_chi_square_law():
    for degrees, needed in ((1, 52), (3, 60), (7, 69), (15, 81), (31, 98)):
        assert statistics.noncentrality(1e-6, 0.99, degrees) == pytest.approx(needed, abs=0.6)
        planned = statistics.sample_size(0.01, degrees, 1e-6)
        assert statistics.power(planned, 0.01, degrees, 1e-6) == pytest.approx(0.99, abs=1e-5)
        assert statistics.visible(planned, degrees, 1e-6) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize("variation", [0.05, 0.02])
@pytest.mark.parametrize("cells", [2, 16])
def test_a_g_test_sees_a_bias_with_the_power_that_was_planned(variation, cells):
    law = np.full(cells, 1 / cells)
    samples = statistics.sample_size(variation, cells - 1, 1e-6)
    one = law + variation * np.where(np.arange(cells) == 0, 1, -1 / (cells - 1))
    seen = {}
    for shape, biased in (("halves", halves(variation, law)), ("one cell", one)):
        draws = np.random.default_rng(2).multinomial(samples, biased, RUNS)
        seen[shape] = sum(statistics.g_test(law, counts).p_value < 1e-6 for counts in draws.tolist())
    assert as_rare_as_promised(RUNS - seen["halves"], 0.01)
    assert seen["halves"] < RUNS  # the plan wastes nothing: this is the shape that is hardest to see
    assert seen["one cell"] >= seen["halves"]


# evidence under peeking


def test_a_mixture_is_the_ratio_of_beta_functions():
    law, cells = (0.5, 0.3, 0.2), [0, 0, 1, 2, 0, 1, 0, 0]
    counts = [cells.count(cell) for cell in range(3)]
    beta = [sum(map(lgamma, a)) - lgamma(sum(a)) for a in ([0.5 + n for n in counts], [0.5] * 3)]
    exact = beta[0] - beta[1] - sum(n * log(p) for n, p in zip(counts, law, strict=True))
    assert update(Mixture(law), singles(cells)).log_e == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("law", [(0.25,) * 4, (0.7, 0.2, 0.08, 0.02)], ids=["uniform", "skewed"])
def test_a_mixture_that_stops_when_it_likes_rejects_a_true_null_no_oftener_than_it_may(law):
    draws = np.random.default_rng(3).choice(4, (RUNS, 150), p=law)
    finals = [update(Mixture(law), singles(run)) for run in draws.tolist()]
    for alpha in ALPHAS:
        assert as_rare_as_promised(rejected(finals, alpha), alpha), alpha


def after(state: State, *requests: Sequence[float]) -> float:
    return exp(update(state, requests).log_e)


def test_a_bet_is_fair_and_made_before_its_outcome_is_known():
    law = (0.5, 0.3, 0.2)
    mixture = update(Mixture(law), singles([0, 0, 1, 2, 0]))
    expected = sum(p * after(mixture, (cell,)) for cell, p in enumerate(law))
    assert expected == pytest.approx(exp(mixture.log_e), rel=1e-12)
    bets = update(Bets(0.1), singles([0.6, -0.4, 0.5, 0.1]))
    assert after(bets, (0.1,)) == pytest.approx(exp(bets.log_e), rel=1e-12)  # a gain of the allowance wins nothing
    assert after(bets, (0.7,)) > after(bets, (0.1,))
    assert after(bets, (0.7,)) + after(bets, (-0.5,)) == pytest.approx(2 * exp(bets.log_e), rel=1e-12)


def test_a_request_of_several_pays_the_mean_of_what_each_would_have_paid():
    for state, (a, b) in (
        (update(Mixture((0.5, 0.3, 0.2)), singles([0, 0, 1])), (0, 2)),
        (update(Bets(), singles([0.6, 0.9, -0.1])), (-0.4, 0.9)),
    ):
        assert after(state, (a, b)) == pytest.approx((after(state, (a,)) + after(state, (b,))) / 2, rel=1e-12)
        assert update(state, [(a, b)]).requests == 4


def test_a_spread_is_taken_about_the_mean_of_the_earlier_requests():
    state = update(Bets(), [(1.0,), (-1.0,), (1.0,), (-0.25, 0.25)])
    assert (state.total, state.spread) == (1.0, pytest.approx(1 + 4 + 1 + 1 / 9))


def test_bets_that_stop_when_they_like_reject_a_true_null_no_oftener_than_they_may():
    drawn = gains(np.random.default_rng(4), 150)[..., 0]
    for sign in (1, -1):
        finals = [update(Bets(), singles(run)) for run in (sign * drawn).tolist()]
        for alpha in ALPHAS:
            assert as_rare_as_promised(rejected(finals, alpha), alpha), (sign, alpha)


def test_a_bias_within_the_allowance_is_no_bias_and_one_beyond_it_is():
    drawn = 2.0 * (np.random.default_rng(5).random((RUNS, 200)) < 0.55) - 1.0  # gains of ±1 with a mean of 0.1
    at = [update(Bets(0.1), singles(run)) for run in drawn.tolist()]
    for alpha in ALPHAS:
        assert as_rare_as_promised(rejected(at, alpha), alpha), alpha
    assert statistics.rejects(update(Bets(0.05), singles(drawn[:100].ravel().tolist())), 1e-6)


def test_tokens_of_one_request_that_are_all_alike_count_once():
    rng = np.random.default_rng(6)
    copies = 16
    cells = np.repeat(rng.integers(4, size=(RUNS, 60, 1)), copies, -1)
    drawn = np.repeat(gains(rng, 60), copies, -1)
    for start, requests in ((Mixture((0.25,) * 4), cells), (Bets(), drawn)):
        once = [update(start, run) for run in requests.tolist()]
        apart = [update(start, singles(run)) for run in requests[:200].reshape(200, -1).tolist()]
        for alpha in ALPHAS:
            assert as_rare_as_promised(rejected(once, alpha), alpha), alpha
            assert not as_rare_as_promised(rejected(apart, alpha), alpha, 200)  # the hazard was there
    counts = np.stack([(cells == cell).sum((1, 2)) for cell in range(4)], -1)
    for divided, holds in ((copies, True), (1, False)):
        small = sum(statistics.g_test([0.25] * 4, c).p_value < 0.05 for c in (counts // divided).tolist())
        assert as_rare_as_promised(small, 0.05) is holds


def test_requests_whose_tokens_depend_on_one_another_in_part_are_bets_like_any_other():
    rng = np.random.default_rng(7)
    kept = rng.random((RUNS, 60, 8)) < 0.7
    cells = rng.integers(4, size=(RUNS, 60, 8))
    for i in range(1, 8):  # a sticky chain whose every token is uniform
        cells[..., i] = np.where(kept[..., i], cells[..., i - 1], cells[..., i])
    finals = [update(Mixture((0.25,) * 4), run) for run in cells.tolist()]
    for alpha in ALPHAS:
        assert as_rare_as_promised(rejected(finals, alpha), alpha), alpha


@pytest.mark.parametrize(("variation", "simulated"), [(0.05, 13_000), (0.02, 106_000)])
def test_a_mixture_reaches_a_million_as_soon_as_theory_says_and_later_than_a_planned_sample(variation, simulated):
    rng = np.random.default_rng(8)
    planned = statistics.sample_size(variation, 15, 1e-6)
    early = late = 0
    for _ in range(7):
        drawn = rng.choice(16, simulated * 5 // 4, p=halves(variation, UNIFORM)).tolist()
        first = update(Mixture(tuple(UNIFORM)), singles(drawn[: planned // 2]))
        early += statistics.rejects(first, 1e-6)
        late += statistics.rejects(update(first, singles(drawn[planned // 2 :])), 1e-6)
    assert early == 0 and late >= 6


@pytest.mark.parametrize("variation", [0.05, 0.02])
def test_a_bet_in_the_right_direction_needs_no_more_than_a_planned_sample(variation):
    rng = np.random.default_rng(9)
    planned = statistics.sample_size(variation, 1, 1e-6)  # of the same two cells
    drawn = (rng.random((20, planned)) < 0.5 + variation) - 0.5
    finals = [update(Bets(), singles(run)) for run in drawn.tolist()]
    assert rejected(finals, 1e-6) >= 15
    against = [update(Bets(), singles(run)) for run in (-drawn[:10]).tolist()]
    assert rejected(against, 0.01) <= 1


def test_an_interval_holds_the_mean_bias_at_every_time_though_the_bias_drifts():
    rng = np.random.default_rng(10)
    length = 400
    bias = 0.3 * np.sin(np.arange(length) / 40)
    drawn = np.where(rng.random((RUNS, length)) < 0.5 + bias / 2, 1.0, -1.0)
    looks = [0, 1, 2, 5, 10, 20, 50, 100, 200, 300, 400]
    for alpha in ALPHAS:
        missed = 0
        for run in drawn.tolist():
            state, wrong = Bets(), False
            for start, end in pairwise(looks):
                state = update(state, singles(run[start:end]))
                low, high = statistics.interval(state, alpha)
                wrong |= not low <= bias[:end].mean() <= high
            missed += wrong
        assert as_rare_as_promised(missed, alpha), alpha


def test_an_interval_shrinks_with_the_spread_and_says_nothing_before_the_first_request():
    assert statistics.interval(Bets(), 0.05) == (-1.0, 1.0)
    rng = np.random.default_rng(11)
    drawn = rng.random(50_000)
    wide, narrow = (update(Bets(), singles((scale * (drawn - 0.5) + 0.01).tolist())) for scale in (0.98, 0.1))
    low, high = statistics.interval(narrow, 1e-6)
    assert 0 < low < 0.01 < high < 0.02
    low, high = statistics.interval(wide, 1e-6)
    one_look = 2 * (2 * log(2 / 1e-6) * wide.spread) ** 0.5 / 50_000  # the Chernoff interval of a known variance
    assert one_look < high - low < 1.25 * one_look


# combination


def test_shards_of_their_own_multiply_and_copies_of_one_shard_may_only_be_averaged():
    draws = np.random.default_rng(12).choice(2, (RUNS, 4, 5))
    shards = [[update(Mixture((0.5, 0.5)), singles(shard)).log_e for shard in run] for run in draws.tolist()]
    copies = [run[:1] * 4 for run in shards]
    for alpha in ALPHAS:
        level = -log(alpha)
        assert as_rare_as_promised(sum(statistics.product(run) >= level for run in shards), alpha)
        assert as_rare_as_promised(sum(statistics.mean(run) >= level for run in copies), alpha)
    assert not as_rare_as_promised(sum(statistics.product(run) >= -log(0.01) for run in copies), 0.01)


def test_products_and_means_are_those_of_the_values_and_not_of_their_logarithms():
    values = [0.5, 8.0, 3.0]
    assert statistics.product(map(log, values)) == pytest.approx(log(12))
    assert statistics.mean([log(value) for value in values]) == pytest.approx(log(11.5 / 3))
    assert statistics.mean([2000.0, 0.0]) == pytest.approx(2000 - log(2))  # beyond the largest number
    assert statistics.mean([inf, 0.0]) == inf


# stored and resumed


@pytest.mark.parametrize(
    ("start", "draw"),
    [
        (update(Mixture((0.4, 0.3, 0.2, 0.1)), singles([3] * 20)), lambda rng, n: rng.integers(4, size=n).tolist()),
        (update(Bets(0.01), singles([0.5] * 20)), lambda rng, n: (rng.random(n) * 2 - 1).tolist()),
    ],
    ids=["mixture", "bets"],
)
def test_a_stored_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    start: State, draw: Callable[[np.random.Generator, int], list[float]]
):
    rng = np.random.default_rng(13)
    requests = [draw(rng, n) for n in rng.integers(1, 7, size=500)]
    whole = update(start, requests)
    cuts = [0, *sorted(rng.integers(500, size=20).tolist()), 500]
    state = start
    for begin, end in pairwise(cuts):
        state = from_json(to_json(update(state, requests[begin:end])))
    assert repr(state) == repr(whole) and state == whole


def test_a_state_with_an_impossible_cell_is_infinite_and_is_still_strict_json():
    state = update(Mixture((0.5, 0.5, 0.0)), [(0,), (2, 0)])
    assert state.log_e == inf and statistics.rejects(state, 1e-300)
    json.loads(to_json(state), parse_constant=lambda name: pytest.fail(name))
    assert from_json(to_json(state)) == state


def test_a_malformed_state_or_request_is_one_error_that_names_the_field():
    good = json.loads(to_json(Bets()))
    for field, value in (
        ("state", "Magic"),
        ("requests", 1.5),
        ("requests", -1),
        ("total", 3.0),
        ("spread", -1.0),
        ("spread", "much"),
        ("peak", -1.0),
        ("log_e", None),
        ("allowance", 1.0),
        ("colour", 1),
    ):
        with pytest.raises(ValueError, match=f"^{field}: "):
            from_json(json.dumps(good | {field: value}))
    del good["total"]
    with pytest.raises(ValueError, match="^total: missing"):
        from_json(json.dumps(good))
    for field, make in (
        ("law", lambda: Mixture((0.5, 0.6))),
        ("law", lambda: Mixture((1.5, -0.5))),
        ("counts", lambda: Mixture((0.5, 0.5), counts=(1.0,))),
        ("requests", lambda: Mixture((0.5, 0.5), counts=(1.0, 1.0))),
        ("requests", lambda: update(Mixture((0.5, 0.5)), [(2,)])),
        ("requests", lambda: update(Bets(), [(0.5,), ()])),
        ("requests", lambda: update(Bets(), [(1.5,)])),
        ("alpha", lambda: statistics.rejects(Bets(), 0.0)),
        ("log_es", lambda: statistics.mean([])),
        ("tokens", lambda: statistics.transform([[1.0, 0.0]], [1], [0.5])),
        ("laws", lambda: statistics.transform([[1.0, np.nan]], [0], [0.5])),
        ("v", lambda: statistics.transform([[1.0]], [0], [1.0])),
        ("bits", lambda: statistics.cells([0.5], 0)),
        ("probabilities", lambda: statistics.ranked([1, 2], [0.9, 0.9], 1, 0.5)),
    ):
        with pytest.raises(ValueError, match=f"^{field}: "):
            make()


# tokens under changing laws


def sampled(rng: np.random.Generator, laws: np.ndarray) -> np.ndarray:
    return (np.cumsum(laws, -1)[..., :-1] < rng.random((*laws.shape[:-1], 1))).sum(-1)


def test_tokens_under_changing_laws_become_uniform_cells_and_a_flattened_law_does_not():
    rng = np.random.default_rng(14)
    laws = rng.dirichlet(np.full(50, 0.2), 20_000) + 1e-12
    flat = laws**0.7 / (laws**0.7).sum(1, keepdims=True)
    v = np.array([statistics.noise(1, request, 0) for request in range(20_000)])
    order = np.argsort(-laws, 1)
    falling = np.take_along_axis(laws, order, 1)
    for law, uniform in ((laws, True), (flat, False)):
        tokens = sampled(rng, np.take_along_axis(law, order, 1))
        u = statistics.transform(falling, tokens, v)
        counts = np.bincount(statistics.cells(u, 4), minlength=16).tolist()
        assert (statistics.g_test(UNIFORM, counts).p_value > 1e-3) is uniform
        state = update(Mixture(tuple(UNIFORM)), singles(statistics.cells(u, 4).tolist()))
        assert statistics.rejects(state, 1e-6) is not uniform


def test_bits_of_a_transform_reject_a_true_null_no_oftener_than_they_may_under_peeking():
    rng = np.random.default_rng(15)
    laws = rng.dirichlet(np.full(5, 0.3), (RUNS, 100)) + 1e-12
    tokens = sampled(rng, laws / laws.sum(-1, keepdims=True))
    v = np.array([[statistics.noise(2, run, position) for position in range(100)] for run in range(RUNS)])
    bits = statistics.cells(statistics.transform(laws.reshape(-1, 5), tokens.ravel(), v.ravel()), 1).reshape(RUNS, 100)
    finals = [update(Mixture((0.5, 0.5)), singles(run)) for run in bits.tolist()]
    for alpha in ALPHAS:
        assert as_rare_as_promised(rejected(finals, alpha), alpha), alpha


def test_a_transform_is_an_exact_piece_of_the_unit_interval_and_ranks_fall_with_probability():
    laws = [[0.2, 0.5, 0.3], [0.4, 1.0, 0.6], [2, 5, 3]]  # one law, scaled
    assert statistics.transform(laws, [0, 1, 2], [0.5, 0.0, 0.2]) == pytest.approx([0.1, 0.2, 0.76])
    for listed in (([7, 3], [0.3, 0.5]), ([3, 7], [0.5, 0.3])):
        assert statistics.ranked(*listed, 3, 0.5) == pytest.approx(0.25)
        assert statistics.ranked(*listed, 7, 0.5) == pytest.approx(0.65)
        assert statistics.ranked(*listed, 11, 0.5) == pytest.approx(0.9)  # of the tail that is not listed
    assert statistics.ranked([3, 7], [0.3, 0.5], 7, 0.5) == pytest.approx(0.25)
    assert statistics.ranked([7, 3], [0.4, 0.4], 3, 0.5) == pytest.approx(0.2)
    assert statistics.cells([0.0, 0.49, 0.5, 0.999], 1).tolist() == [0, 0, 1, 1]


def test_the_noise_of_a_token_depends_on_where_it_stands_and_on_nothing_else():
    places = [(seed, request, position) for seed in range(4) for request in range(4) for position in range(4)]
    values = [statistics.noise(*place) for place in places]
    assert values == [statistics.noise(*place) for place in places] and len(set(values)) == 64
    assert all(0 <= value < 1 for value in values)


def test_what_is_derived_again_does_not_depend_on_how_python_adds_floats():
    """From 3.12 on `sum` compensates, so a report of one version would not follow from itself in another."""
    tenths = [0.1] * 10  # one by one they come to 0.9999999999999999
    assert acceptance.counts({"what": "", "chance": tenths, "accepted": [True] + [False] * 9}) == (10, 0.0)
    assert statistics.fixed.pooled([0.5, *[0.05] * 10], [0] * 11, 2)[0] == [0.5, 0.5]
