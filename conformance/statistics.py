"""Finite-sample tests of counts against a known law: no asymptotics, so the error rate is exact at any sample size."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p, sqrt

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
        law.append(sum(p[i] for i in rest))
        seen.append(sum(counts[i] for i in rest))
    return law, seen


def test(p: Sequence[float], counts: Sequence[int], alpha: float, slack: float = 0.0, cells: int = 16) -> Tested:
    """Test counts against the law p at error rate alpha.

    Half of alpha goes to the total variation (Weissman et al. 2003: P(‖p̂ - p‖₁ ≥ e) ≤ (2^k - 2) exp(-n e² / 2) over k
    cells), half to exact binomial tails of each cell. A count on a cell of probability zero rejects at once. `slack` is
    the total variation that rounding may explain: any law that near to p must pass.
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
    reach = 0.5 * sqrt(2 * (log(2.0**k - 2 if k > 1 else 1.0) + log(2 / alpha)) / samples)
    variation = 0.5 * sum(abs(c / samples - q) for q, c in zip(law, seen, strict=True))
    bound, visible = min(1.0, variation + reach), min(1.0, 2 * reach + slack)
    if variation > reach + slack:
        explained = f"chance and rounding explain {reach + slack:.4g} at error rate {alpha:.1g}"
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
