"""Counts against a law known up to a tolerance: rare false alarms under peeking, power, and agreement with theory."""

from math import log

import numpy as np
import pytest

from specqual.conformance import statistics
from specqual.conformance.kinds import counts
from specqual.conformance.statistics import Mixture
from specqual.conformance.verdicts import Verdict

RUNS = 1500
LAW = [0.4, 0.25, 0.15, 0.1, 0.07, 0.03]


def within(law: list[float], slack: float) -> list[float]:
    """A law that is exactly `slack` away, mass moved from the first cell to the last."""
    return [law[0] - slack, *law[1:-1], law[-1] + slack]


def at_most(count: int, alpha: float, runs: int = RUNS) -> bool:
    return statistics.binomial_tail(runs, count, alpha) > 1e-4 or count < alpha * runs


def drawn(rng: np.random.Generator, law: list[float], samples: int, runs: int = RUNS) -> np.ndarray:
    return rng.multinomial(samples, law, size=runs)


def test_without_tolerance_the_evidence_is_that_of_the_mixture_that_bets_one_by_one():
    tokens = np.random.default_rng(1).choice(6, 300, p=LAW)
    state = statistics.update(Mixture(tuple(LAW)), [(token,) for token in tokens.tolist()])
    found = statistics.log_e(LAW, np.bincount(tokens, minlength=6).tolist())
    assert found == pytest.approx(state.log_e, abs=1e-9)


@pytest.mark.parametrize("slack", [0.0, 0.02])
def test_any_law_within_the_tolerance_is_rejected_as_seldom_as_promised_however_often_one_looks(slack):
    truth = within(LAW, slack)
    batches = np.random.default_rng(2).multinomial(25, truth, size=(RUNS, 16)).cumsum(1)
    for alpha in (0.05, 0.01):
        peeked = sum(any(statistics.log_e(LAW, row, slack) >= -log(alpha) for row in run) for run in batches.tolist())
        at_end = sum(statistics.p_value(LAW, run[-1], slack) <= alpha for run in batches.tolist())
        assert at_most(peeked, alpha) and at_most(at_end, alpha)


def test_no_law_within_the_tolerance_makes_counts_likelier_than_the_one_found():
    rng = np.random.default_rng(3)
    for slack in (0.01, 0.1, 0.3):
        seen = rng.multinomial(60, rng.dirichlet([0.5] * 6))
        best = statistics.likeliest(LAW, seen.tolist(), slack)
        assert sum(best) == pytest.approx(1) and np.abs(np.subtract(best, LAW)).sum() / 2 <= slack + 1e-9
        others = rng.dirichlet([1] * 6, 4000)
        far = np.abs(others - LAW).sum(1) / 2
        others = LAW + (others - LAW) * np.minimum(1, slack / far)[:, None]  # pulled into the ball
        value = (seen * np.log(np.maximum(best, 1e-300))).sum()
        assert value >= (seen * np.log(others)).sum(1).max() - 1e-9


@pytest.mark.parametrize("variation", [0.05, 0.02, 0.01, 0.005])
def test_evidence_suffices_as_soon_as_theory_says(variation):
    """Half of the cells up, half down: the shape of least divergence. On the average the
    samples of theory suffice, and four standard deviations more do so nearly always."""
    p = [0.125] * 8
    q = [0.125 + variation / 4 * (1 if i % 2 else -1) for i in range(8)]
    samples = next(n for n in range(1000, 2_000_000, 500) if statistics.expected(n, 7, 1e-6) <= variation)
    found = [statistics.log_e(p, c) for c in drawn(np.random.default_rng(4), q, samples, 200).tolist()]
    gain = 2 * samples * variation**2
    assert np.mean(found) == pytest.approx(-log(1e-6), abs=4.0 + gain * 0.02)
    more = samples + round(4 * np.std(found) / (2 * variation**2))
    assert sum(statistics.log_e(p, c) >= -log(1e-6) for c in drawn(np.random.default_rng(5), q, more, 50).tolist()) > 45


def test_impossible_cells_are_infinite_evidence_unless_tolerance_allows_them():
    assert statistics.log_e([1.0, 0.0], [5, 1]) == float("inf") and statistics.p_value([1.0, 0.0], [5, 1]) == 0.0
    assert statistics.log_e([1.0, 0.0], [999, 1], 0.01) < 0 < statistics.log_e([1.0, 0.0], [500, 500], 0.01)
    assert statistics.log_e([1.0, 0.0], [0, 0]) == pytest.approx(0.0) and statistics.p_value([1.0], [7]) == 1.0


# several tests at once


def test_holm_and_e_bh_list_the_guilty_and_spare_the_others():
    assert statistics.holm([0.2, 0.001, 0.012, 0.9], 0.05) == [1, 2]
    assert statistics.holm([0.2, 0.3], 0.05) == [] and statistics.holm([], 0.05) == []
    assert statistics.e_bh([log(25), log(200), 0.0, log(90)], 0.05) == [1, 3]  # 4 / (2 · 0.05) = 40, 4 / (3 · 0.05)
    assert statistics.e_bh([log(10)] * 4, 0.05) == []


def test_holm_rejects_a_true_null_no_oftener_than_promised_among_false_ones():
    p = np.random.default_rng(6).random((RUNS, 10))
    p[:, :4] *= 1e-4
    wrong = sum(any(place >= 4 for place in statistics.holm(row, 0.05)) for row in p.tolist())
    assert at_most(wrong, 0.05) and wrong > 0


def test_half_of_what_e_bh_lists_is_never_false_on_the_average():
    rng = np.random.default_rng(7)
    parts = []
    for _ in range(RUNS):
        null = [statistics.log_e(LAW, c) for c in drawn(rng, LAW, 100, 6).tolist()]
        biased = [statistics.log_e(LAW, c) for c in drawn(rng, within(LAW, 0.3), 100, 2).tolist()]
        listed = statistics.e_bh(null + biased, 0.2)
        parts.append(sum(place < 6 for place in listed) / max(len(listed), 1))
    assert np.mean(parts) < 0.2


# the verdict


def case(law: list[float], samples: int, planned: int, seed: int, slack: float = 0.0) -> dict:
    rng = np.random.default_rng(seed)
    joint, node = ([int(n) for n in rng.multinomial(samples, law)] for _ in range(2))
    told = {"after": [3], "tokens": [5, 2, 9, 1, 4], "p": LAW, "slack": slack, "counts": node}
    found = {"label": "one", "p": LAW, "counts": joint, "slack": slack, "alpha": 1e-6, "wanted": 0.5}
    return found | {"planned": planned, "nodes": [told]}


def test_a_run_that_ended_early_is_violated_by_its_evidence_or_left_open_and_never_tested_at_a_size_it_chose():
    biased = within(LAW, 0.2)
    early = counts.decide([case(biased, 400, 10_000, 8)])
    assert early.verdict is Verdict.VIOLATED and "behind [3]: token 5" in early.detail
    assert counts.decide([case(LAW, 400, 10_000, 8)]).verdict is Verdict.INCONCLUSIVE
    assert counts.decide([case(LAW, 4_000, 4_000, 8)]).verdict is Verdict.HOLDS
    assert counts.decide([case(biased, 4_000, 4_000, 8, slack=0.25)]).verdict is Verdict.HOLDS


def test_sound_runs_are_violated_no_oftener_than_their_error_rate():
    found = 0
    for seed in range(RUNS):
        wide = case(LAW, 300, 300, seed) | {"alpha": 0.05}
        found += counts.decide([wide]).verdict is Verdict.VIOLATED
    assert at_most(found, 0.05)


@pytest.mark.parametrize(("samples", "slack"), [(2_000, 0.0), (40_000, 0.0), (40_000, 0.01)])
def test_a_bias_that_is_called_visible_behind_a_prefix_is_seen_nine_times_in_ten(samples, slack):
    """Half of the mass up, half down, by the bias that is stated: the shape that is hardest to see."""
    p = [0.125] * 8
    told = case([0.5, 0.5], samples, samples, 1) | {"p": [0.5, 0.5], "wanted": 1.0}
    told["nodes"] = [{"after": [3], "tokens": [*range(7)], "p": p, "slack": slack, "counts": [samples, *[0] * 7]}]
    bias = counts.sighted([told])
    q = [0.125 + bias / 4 * (1 if i % 2 else -1) for i in range(8)]
    seen = [
        counts.against([told | {"nodes": [told["nodes"][0] | {"counts": row}]}]) >= counts.enough(1e-6)
        for row in drawn(np.random.default_rng(9), q, samples, 200).tolist()
    ]
    assert sum(seen) >= 170, sum(seen)


def test_what_is_left_together_in_one_cell_may_hide_a_bias_as_large_as_its_mass():
    """Half of everything else goes where it should not, and no cell shows it: the bound says so."""
    law, rng = [0.5, 0.3, 0.2], np.random.default_rng(10)
    seen = [int(n) for n in rng.multinomial(100_000, law)]
    one = case(LAW, 10, 10, 1) | {"p": law, "counts": seen, "planned": 100_000, "nodes": []}
    found = counts.decide([one])
    assert found.verdict is Verdict.HOLDS and found.delta > 0.2
    told_apart = counts.decide([one | {"p": [*law, 0.0], "counts": [*seen, 0]}])
    assert told_apart.delta < 0.05


def test_the_bias_that_a_run_could_have_seen_shrinks_with_its_samples():
    few, many = (counts.sighted([case(LAW, samples, samples, 1)]) for samples in (400, 40_000))
    assert many < few / 5 and 0.5 > few > 0.1
