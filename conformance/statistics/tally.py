"""What counts say against a law that is known up to a tolerance, as functions of the counts alone.

The null is every law within a total variation of `slack` of p: what rounding may have made of it. All evidence is
taken against the member of that ball under which the counts are likeliest, so it holds against every member.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import exp, fsum, inf, lgamma, log, pi, sqrt
from statistics import NormalDist

from .eprocess import PRIOR


def likeliest(p: Sequence[float], counts: Sequence[int], slack: float) -> list[float]:
    """The law [V] within `slack` (total variation) of p [V] under which counts [V] are likeliest.

    Cells seen too often are raised to n / a, cells seen too seldom lowered to n / b, each by a mass of `slack`.
    """
    total = sum(counts)
    seen = [count / total for count in counts] if total else list(p)
    if fsum(abs(s - q) for s, q in zip(seen, p, strict=True)) / 2 <= slack:
        return seen
    if slack <= 0:
        return list(p)

    ratios = [share / q if q else inf for share, q in zip(seen, p, strict=True)]
    order = sorted((i for i in range(len(p)) if p[i] or seen[i]), key=lambda i: ratios[i])
    high = max(share / (mass + slack) for share, mass in _sums(seen, p, order[::-1]))
    low = min(share / (mass - slack) for share, mass in _sums(seen, p, order) if mass > slack)
    unseen = fsum(q for share, q in zip(seen, p, strict=True) if not share)
    kept = max(unseen - slack, 0.0) / unseen if unseen else 0.0  # of cells whose mass costs nothing to take away

    def moved(share: float, q: float, ratio: float) -> float:
        if not share:
            return q * kept
        return share / high if ratio > high else share / low if ratio < low else q

    return [moved(*cell) for cell in zip(seen, p, ratios, strict=True)]


def _sums(seen: Sequence[float], p: Sequence[float], order: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Sums of seen shares and of p over the first cells of an order."""
    return zip(accumulate(seen[i] for i in order), accumulate(p[i] for i in order), strict=True)


def _log_likelihood(law: Sequence[float], counts: Sequence[int]) -> float:
    if any(count and q <= 0 for q, count in zip(law, counts, strict=True)):
        return -inf
    return fsum(count * log(q) for q, count in zip(law, counts, strict=True) if count)


def divergence(p: Sequence[float], counts: Sequence[int], slack: float = 0.0) -> float:
    """N · KL (nats) of the observed shares from the nearest law of the null; infinite on a cell that none allows."""
    total = sum(counts)
    seen = fsum(count * log(count / total) for count in counts if count)
    return max(seen - _log_likelihood(likeliest(p, counts, slack), counts), 0.0)


def log_e(p: Sequence[float], counts: Sequence[int], slack: float = 0.0) -> float:
    """Log of the Dirichlet mixture's e-value: as `Mixture`, which it equals for slack 0, against every law of the null.

    It depends on counts alone, so that whoever holds them may check it; it stays valid under early stop.
    """
    weight = PRIOR * len(p)
    mixed = fsum(lgamma(PRIOR + count) - lgamma(PRIOR) for count in counts)
    mixed += lgamma(weight) - lgamma(weight + sum(counts))
    return mixed - _log_likelihood(likeliest(p, counts, slack), counts)


def p_value(p: Sequence[float], counts: Sequence[int], slack: float = 0.0) -> float:
    """Bound of the chance that counts of this size diverge as far from the null as these; finite-sample.

    P(N · KL ≥ x) ≤ exp(-x) (e x / d)^d with d = V - 1 degrees of freedom, for x > d ("Finite-sample concentration of
    the multinomial in relative entropy", Agrawal 2020).
    """
    degrees, x = max(len(p) - 1, 1), divergence(p, counts, slack)
    if x == inf:
        return 0.0
    return 1.0 if x <= degrees else exp(degrees * (1 + log(x / degrees)) - x)


def expected(samples: int, degrees: int, alpha: float, power: float = 0.5) -> float:
    """The total variation at which the mixture reaches 1/alpha with this power, whatever the bias's shape; at most 1.

    N · KL grows by G = 2 N variation² at least, spread by √(2 G), and by d / 2 that chance adds; the mixture pays
    (d / 2) log(N / 2π) and Stirling's constants for having to learn the law.
    """
    if samples <= 0 or degrees < 1:
        return 1.0
    learning = degrees / 2 * log(max(samples, 2)) + lgamma(PRIOR) * (degrees + 1) - lgamma(PRIOR * (degrees + 1))
    learning -= degrees / 2 * (log(2 * pi) + 1)
    z = NormalDist().inv_cdf(power)
    root = (sqrt(2) * z + sqrt(2 * z**2 + 4 * (max(learning, 0.0) - log(alpha)))) / 2  # of G
    return min(1.0, root / sqrt(2 * samples))
