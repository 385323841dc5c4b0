"""Evidence that survives peeking and resume: e-processes whose whole state is a small frozen value.

An e-process E starts at 1 and has expectation at most 1 under the null at every stopping time, so by Ville's inequality
P(sup E ≥ 1/α) ≤ α: it may be looked at after every bet, stopped at will, stored and resumed.

One bet is made per *request*, a sequence of observations that may depend on one another in any way: the bet pays the
mean over them, so a request of identical tokens counts once. Observations whose law is known given all earlier ones (a
token under its own prefix) may be passed as requests of one.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import singledispatch
from math import exp, fsum, inf, isfinite, log, log1p
from typing import Any

PRIOR = 0.5  # Jeffreys' weight of a cell
SAFE = 0.5  # the share of the capital that one bet may lose
STAKES = tuple(0.45 * 2.0**-k for k in range(14))  # of `interval`, for runs of tens to some ten million requests


@dataclass(frozen=True, slots=True)
class Mixture:
    """Dirichlet-mixture e-process against the point null that cells follow `law` [V].

    E_n = [B(a + n) / B(a)] / Π pᵢ^nᵢ with a = ½, as a product of predictive probabilities over null ones
    ("Anytime-valid inference for multinomial count data"). A cell of probability zero, once seen, makes E infinite.
    """

    law: tuple[float, ...]
    requests: int = 0
    counts: tuple[float, ...] = ()  # of requests per cell, in fractions where one holds several; () is nothing seen
    log_e: float = 0.0
    peak: float = 0.0  # largest log_e so far

    def __post_init__(self) -> None:
        _require(len(self.law) > 0 and all(0 <= p <= 1 for p in self.law), "law", "must hold probabilities")
        _require(abs(fsum(self.law) - 1.0) < 1e-9, "law", "must sum to one")
        if not self.counts:
            object.__setattr__(self, "counts", (0.0,) * len(self.law))
        _require(len(self.counts) == len(self.law), "counts", "must match law")
        _require(all(0 <= n < inf for n in self.counts), "counts", "must be non-negative")
        near = 1e-9 * max(self.requests, 1)
        _require(abs(fsum(self.counts) - self.requests) <= near, "requests", "must be the sum of counts")
        _require(self.log_e <= self.peak and self.peak >= 0, "peak", "must be at least log_e and 0")


@dataclass(frozen=True, slots=True)
class Bets:
    """Betting e-process against the null that a gain has expectation at most `allowance`, given all earlier requests.

    A gain is f(x) - Σ p f in [-1, 1], where f in [0, 1] was chosen before the token x. E is the product of
    1 + λ_t (d_t - allowance), d_t being the mean gain of request t and λ_t ≥ 0 a stake computed from earlier requests
    only ("Estimating means of bounded random variables by betting"). For the other direction bet on negated gains.
    """

    allowance: float = 0.0  # the bias that the null tolerates
    requests: int = 0
    total: float = 0.0  # Σ d_t
    spread: float = 0.0  # Σ (d_t - mean of the earlier ones)²
    log_e: float = 0.0
    peak: float = 0.0  # largest log_e so far

    def __post_init__(self) -> None:
        _require(0 <= self.allowance < 1, "allowance", "must lie in [0, 1)")
        _require(self.requests >= 0, "requests", "must be non-negative")
        _require(abs(self.total) <= self.requests, "total", "must lie within the number of requests")
        _require(0 <= self.spread <= 4 * self.requests, "spread", "must lie within four times the number of requests")
        _require(self.log_e <= self.peak and self.peak >= 0, "peak", "must be at least log_e and 0")


State = Mixture | Bets


def _require(holds: bool, field: str, rule: str) -> None:
    if not holds:
        raise ValueError(f"{field}: {rule}")


@singledispatch
def update(state: Any, requests: Iterable[Sequence[float]]) -> Any:
    """The state after one bet per request: of cells (integers below V) for Mixture, of gains in [-1, 1] for Bets.

    However the requests are divided among calls, the resulting state is the same bit for bit. ValueError names
    `requests` where one is empty or an observation out of range.
    """
    raise TypeError(f"state: must be a Mixture or Bets, not {type(state).__name__}")


@update.register
def _(state: Mixture, requests: Iterable[Sequence[int]]) -> Mixture:
    law, bets, counts, log_e, peak = state.law, state.requests, list(state.counts), state.log_e, state.peak
    prior = PRIOR * len(law)
    for request in requests:
        if not request or not all(0 <= cell < len(law) for cell in request):
            raise ValueError(f"requests: must each hold cells below {len(law)}, and at least one")
        ratios = [(PRIOR + counts[cell]) / (prior + bets) / law[cell] if law[cell] else inf for cell in request]
        log_e += log(fsum(ratios) / len(request))
        peak = max(peak, log_e)
        for cell in request:
            counts[cell] += 1.0 / len(request)
        bets += 1
    return replace(state, requests=bets, counts=tuple(counts), log_e=log_e, peak=peak)


@update.register
def _(state: Bets, requests: Iterable[Sequence[float]]) -> Bets:
    bets, total, spread, log_e, peak = state.requests, state.total, state.spread, state.log_e, state.peak
    for request in requests:
        if not request or not all(-1 <= gain <= 1 for gain in request):
            raise ValueError("requests: must each hold gains in [-1, 1], and at least one")
        gain = fsum(request) / len(request)
        log_e += log1p(stake(state.allowance, bets, total, spread) * (gain - state.allowance))
        peak = max(peak, log_e)
        spread += (gain - (total / bets if bets else 0.0)) ** 2
        total += gain
        bets += 1
    return replace(state, requests=bets, total=total, spread=spread, log_e=log_e, peak=peak)


def stake(allowance: float, bets: int, total: float, spread: float) -> float:
    """The stake of the next bet: the approximate growth optimum m / (v + m²) for what was seen, capped for safety.

    m is the mean excess over the allowance, shrunk by one pseudo-request at it; v the spread, by one at a quarter.
    """
    excess = (total - bets * allowance) / (bets + 1)
    variance = (spread + 0.25) / (bets + 1)
    return min(max(excess / (variance + excess * excess), 0.0), SAFE / (1.0 + allowance))


def interval(state: Bets, alpha: float) -> tuple[float, float]:
    """Bounds of the mean bias of all requests so far, each request's own bias being free to differ.

    With probability 1 - alpha they hold at every time at once. For each λ < ½ of a fixed set, and on either side, the
    product of exp(λ (d_t - bias_t) - ψ(λ) (d_t - d̄_t)²) with ψ(λ) = (-log(1 - 2λ) - 2λ) / 4 and d̄_t the mean of earlier
    gains is an e-process (empirical Bernstein bets: "Time-uniform, nonparametric, nonasymptotic confidence sequences");
    alpha is shared among them.
    """
    _require(0 < alpha < 1, "alpha", "must lie in (0, 1)")
    if not state.requests:
        return -1.0, 1.0
    price = log(2 * len(STAKES) / alpha)
    costs = (price - state.spread * (log1p(-2 * s) + 2 * s) / 4 for s in STAKES)
    reach = min(cost / s for cost, s in zip(costs, STAKES, strict=True)) / state.requests
    centre = state.total / state.requests
    return max(-1.0, centre - reach), min(1.0, centre + reach)


def rejects(state: State, alpha: float) -> bool:
    """Whether the null is rejected at error rate alpha: at its peak E was at least 1/alpha."""
    _require(0 < alpha < 1, "alpha", "must lie in (0, 1)")
    return state.peak >= -log(alpha)


def product(log_es: Iterable[float]) -> float:
    """Log of the product of e-values: an e-value where they are independent, such as shards with requests of their own.

    Pass `log_e` at the end of each shard, never `peak`: a peak is no e-value.
    """
    return fsum(log_es)


def mean(log_es: Sequence[float]) -> float:
    """Log of the mean of e-values: an e-value whatever their dependence. Pass `log_e`, never `peak`."""
    _require(len(log_es) > 0, "log_es", "must not be empty")
    largest = max(log_es)
    if not isfinite(largest):
        return largest
    return largest + log(fsum(exp(value - largest) for value in log_es) / len(log_es))


def to_json(state: State) -> str:
    """The state as strict JSON, to the last bit; infinities become the strings "inf" and "-inf"."""
    return json.dumps(to_dict(state))


def to_dict(state: State) -> dict[str, Any]:
    """The state in JSON's own types, with infinities as text."""
    return {"state": type(state).__name__} | {key: _written(value) for key, value in asdict(state).items()}


def from_json(text: str) -> State:
    """The state that `to_json` wrote; ValueError names the field that is missing, unknown or malformed."""
    return from_dict(json.loads(text))


def from_dict(given: Any) -> State:
    """The state that `to_dict` gave; ValueError as `from_json`."""
    values = dict(given) if isinstance(given, dict) else given
    _require(isinstance(values, dict) and values.get("state") in KINDS, "state", f"must be one of {', '.join(KINDS)}")
    kind = KINDS[values.pop("state")]
    for name in sorted(values.keys() ^ {field.name for field in fields(kind)}):
        raise ValueError(f"{name}: {'unknown' if name in values else 'missing'}")
    return kind(**{name: _read(name, value) for name, value in values.items()})


KINDS: dict[str, type[Mixture] | type[Bets]] = {kind.__name__: kind for kind in (Mixture, Bets)}


def _written(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _read(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(name, item) for item in value)
    if name == "requests":
        _require(type(value) is int, name, "must be an integer")
        return value
    _require(type(value) in (int, float) or value in ("inf", "-inf"), name, "must be a number")
    return float(value)
