"""How small a fault a clause could have seen: the smallest effect that its evidence would have shown."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .kinds import Case, acceptance, counts, flips, leans

ANY = "any difference"


def visible(evidence: Mapping[str, Any]) -> str:
    """The smallest effect that this evidence, in its JSON form, would have shown, with its unit.

    Empty where there is no case, so that nothing was looked at, and where the evidence is malformed.
    """
    cases = evidence["cases"]
    try:
        return SEEN.get(evidence["kind"], lambda cases: ANY)(cases) if cases else ""
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return ""


def largest(cases: Sequence[Case], name: str) -> float:
    return max(float(case.get(name) or 0.0) for case in cases)


def _within(name: str, said: str) -> Callable[[Sequence[Case]], str]:
    """Anything beyond the largest of a tolerance; any difference at all where it is zero."""

    def seen(cases: Sequence[Case]) -> str:
        tolerance = largest(cases, name)
        return said.format(f"{tolerance:.2g}") if tolerance else ANY

    return seen


def _draws(cases: Sequence[Case]) -> str:
    slack = max(float(d.get("slack", case["slack"])) for case in cases for d in case["decisions"] or [case])
    return f"a decision {min(slack, 1.0):.2g} in probability off its edge"


def _counts(cases: Sequence[Case]) -> str:
    said = f"a bias of {max(test.visible for test in counts.joint(cases)):.2g} (total variation)"
    if not any(case.get("nodes") for case in cases):
        return said
    return f"{said}, or of {counts.sighted(cases):.2g} behind the most frequent prefix"


def _flips(cases: Sequence[Case]) -> str:
    on = [case for case in cases if case["arm"] == "on"]
    enough, token = flips.visible(on, float(on[0]["alpha"])), SEEN["greedy"](cases)
    return token if enough is None else f"{token}, or flips that rounding hardly explains in {enough} requests"


def _leans(cases: Sequence[Case]) -> str:
    return f"a lean of {leans.sighted(cases):.2g}"


def _acceptance(cases: Sequence[Case]) -> str:
    one, every = acceptance.sighted(cases)
    return f"an acceptance off by {every:.2g} on the average over all slots, or by {one:.2g} at one"


def _histories(cases: Sequence[Case]) -> str:
    seen = [case["difference"] for case in cases if case["difference"] is not None]
    return _within("tolerance", "a difference beyond {}")(seen) if seen else ANY


SEEN: Mapping[str, Callable[[Sequence[Case]], str]] = {
    "greedy": _within("envelope", "a token {} nats worse than the best"),
    "flips": _flips,
    "drafts": _within("envelope", "a draft {} nats worse than the best"),
    "laws": _within("tolerance", "q off by {} (total variation)"),
    "values": _within("tolerance", "a difference beyond {}"),
    "histories": _histories,
    "draws": _draws,
    "counts": _counts,
    "leans": _leans,
    "acceptance": _acceptance,
}
"""By kind of evidence; whatever is not here is decided by plain comparison."""
