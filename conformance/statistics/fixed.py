"""Tests of counts against a known law at a sample size fixed beforehand.

`test` is finite-sample: no asymptotics, so its error rate holds at any sample size. `g_test` is the likelihood ratio:
its error rate is that of a chi-square approximation, and in exchange its power is known in closed form, so that a run
can be planned. It and the plans need SciPy, which is imported where it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, fsum, lgamma, log, log1p, sqrt

MOST_SAMPLES = 10**9  # so that a tail, which is summed term by term, stays a matter of seconds


@dataclass(frozen=True, slots=True)
class Tested:
    """Outcome of one test: `rejected` is the reason, or None; `bound` and `visible` are total variations."""

    samples: int
    rejected: str | None
    bound: float  # the bias is at most this, at the test's error rate
    visible: float  # a bias of this much or more is rejected, with the same certainty


def _log_binomial(n: int, k: int, p: float) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p)


def binomial_tail(n: int, k: int, p: float) -> float:
    """Probability of a count at least as far from n·p as k, on k's side of it; 1 where k is the mean."""
    if p <= 0:
        return 1.0 if k == 0 else 0.0
    if p >= 1:
        return 1.0 if k == n else 0.0
    if k == n * p:
        return 1.0
    side = range(k, n + 1) if k > n * p else range(k, -1, -1)
    total = 0.0
    for count in side:  # falls monotonically away from the mean, so it may stop early
        term = exp(_log_binomial(n, count, p))
        total += term
        if term <= total * 1e-17:
            break
    return min(total, 1.0)


def pooled(p: Sequence[float], counts: Sequence[int], cells: int) -> tuple[list[float], list[int]]:
    """Keep the `cells - 1` largest probabilities and put the rest in one cell; chosen by p alone, never by counts."""
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    kept, rest = order[: cells - 1], order[cells - 1 :]
    law, seen = [p[i] for i in kept], [counts[i] for i in kept]
    if rest:
        law.append(fsum(p[i] for i in rest))
        seen.append(sum(counts[i] for i in rest))
    return law, seen


def reach(samples: int, cells: int, alpha: float) -> float:
    """How far in total variation the shares of so many samples over so many cells may be from their law by chance, but
    with probability alpha: P(‖p̂ - p‖₁ ≥ e) ≤ (2^k - 2) exp(-n e² / 2), Weissman et al. 2003."""
    return 0.5 * sqrt(2 * (log(2.0**cells - 2 if cells > 1 else 1.0) + log(1 / alpha)) / samples)


def test(p: Sequence[float], counts: Sequence[int], alpha: float, slack: float = 0.0, cells: int = 16) -> Tested:
    """Test counts against the law p at error rate alpha.

    Half of alpha goes to the total variation over all cells, half to exact binomial tails of each. A count on a cell of
    probability zero rejects at once. `slack` is the total variation that rounding may explain: any law that near to p
    must pass. Of a cell that stands for several outcomes only their sum is tested.
    """
    if len(p) != len(counts) or not counts or any(count < 0 for count in counts) or not 0 < alpha < 1:
        raise ValueError("counts: must match p, be non-negative, and have an alpha in (0, 1)")
    samples = sum(counts)
    if samples > MOST_SAMPLES:
        raise ValueError(f"counts: hold more than {MOST_SAMPLES} samples")
    for cell, (probability, count) in enumerate(zip(p, counts, strict=True)):
        if probability == 0 and count and not slack:
            return Tested(samples, f"cell {cell} has probability zero and was seen {count} times", 1.0, 0.0)
    law, seen = pooled(p, counts, cells)
    k = len(law)
    if samples == 0:
        return Tested(0, None, 1.0, 1.0)
    far = reach(samples, k, alpha / 2)
    variation = 0.5 * fsum(abs(c / samples - q) for q, c in zip(law, seen, strict=True))
    bound, visible = min(1.0, variation + far), min(1.0, 2 * far + slack)
    if variation > far + slack:
        explained = f"chance and rounding explain {far + slack:.4g} at error rate {alpha:.1g}"
        reason = f"total variation {variation:.4g} over {k} cells, {explained}"
        return Tested(samples, reason, bound, visible)
    for cell, (q, count) in enumerate(zip(law, seen, strict=True)):
        seen_share = count / samples
        nearest = min(max(seen_share, q - slack), q + slack)  # of what rounding may have made of q
        tail = 1.0 if nearest == seen_share else binomial_tail(samples, count, nearest)
        if tail < alpha / (4 * k):
            reason = f"cell {cell} was seen {count} times of {samples}, expected {samples * q:.1f}; chance {tail:.2g}"
            return Tested(samples, reason, bound, visible)
    return Tested(samples, None, bound, visible)


EXPECTED = 5.0  # a cell expected less often than this is pooled: the chi-square approximation fails there


@dataclass(frozen=True, slots=True)
class Fit:
    """Outcome of one G-test: the statistic after Williams' correction, its degrees of freedom and its p-value."""

    samples: int
    statistic: float
    degrees: int
    p_value: float


def g_test(p: Sequence[float], counts: Sequence[int]) -> Fit:
    """Likelihood-ratio test of counts against the law p, as a p-value by the chi-square approximation.

    G = 2 Σ nᵢ log(nᵢ / N pᵢ), divided by Williams' factor 1 + (Σ 1/pᵢ - 1) / (6 N (k - 1)). Cells are pooled by
    p and N alone until each is expected at least `EXPECTED` times; a count on a cell of probability zero has p-value 0.
    Of samples that depend on one another, such as the tokens of one request, count one. Enumerated over two cells, a
    rejection at p < alpha has at most 1.4 times that probability, at 0.05 as at 1e-6.
    """
    from scipy.special import chdtrc

    if len(p) != len(counts) or not counts or any(count < 0 for count in counts):
        raise ValueError("counts: must match p and be non-negative")
    samples = sum(counts)
    if any(count and not probability for probability, count in zip(p, counts, strict=True)):
        return Fit(samples, float("inf"), 0, 0.0)
    law, seen = pooled(p, counts, _expected_cells(p, samples))
    degrees = len(law) - 1
    if degrees == 0:
        return Fit(samples, 0.0, 0, 1.0)
    g = 2.0 * fsum(n * log(n / (samples * q)) for q, n in zip(law, seen, strict=True) if n)
    williams = 1.0 + (fsum(1.0 / q for q in law) - 1.0) / (6.0 * samples * degrees)
    statistic = max(g, 0.0) / williams
    return Fit(samples, statistic, degrees, float(chdtrc(degrees, statistic)))


def _expected_cells(p: Sequence[float], samples: int) -> int:
    """How many cells `pooled` may make of p so that each, the last one included, is expected `EXPECTED` times."""
    frequent = sum(samples * q >= EXPECTED for q in p)
    rest = samples * fsum(q for q in p if samples * q < EXPECTED)
    return max(frequent + (rest >= EXPECTED), 1)


def noncentrality(alpha: float, power: float, degrees: int) -> float:
    """The noncentrality λ at which a chi-square test at error rate alpha rejects with this power."""
    from scipy.special import chdtri, chndtrinc

    if not 0 < alpha < power < 1 or degrees < 1:
        raise ValueError("alpha, power, degrees: must be 0 < alpha < power < 1 and at least one degree of freedom")
    return float(chndtrinc(chdtri(degrees, alpha), degrees, 1.0 - power))


def power(samples: int, variation: float, degrees: int, alpha: float) -> float:
    """Least probability of a rejection at this total variation: every law that far from p has χ² ≥ 4 variation²."""
    from scipy.special import chdtri
    from scipy.stats import ncx2

    return float(ncx2.sf(chdtri(degrees, alpha), degrees, 4.0 * samples * variation**2))


def sample_size(variation: float, degrees: int, alpha: float, power: float = 0.99) -> int:
    """Samples that suffice to reject any law at this total variation: λ / (4 variation²), rounded up."""
    if not 0 < variation <= 1:
        raise ValueError("variation: must lie in (0, 1]")
    return ceil(noncentrality(alpha, power, degrees) / (4.0 * variation**2))


def visible(samples: int, degrees: int, alpha: float, power: float = 0.99) -> float:
    """The smallest total variation that this many samples reject with this power; at most 1."""
    return min(1.0, sqrt(noncentrality(alpha, power, degrees) / (4.0 * samples))) if samples else 1.0
