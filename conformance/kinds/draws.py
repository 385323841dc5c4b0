"""Draws: decisions and the random numbers they must follow from."""

from collections.abc import Sequence

from ..verdicts import Decision, Verdict
from . import Case


def _misdrawn(decision: Case) -> tuple[float, str]:
    """How far (in probability) a decision is from the one its number asks for, and what it should have been."""
    if decision["u"] is None:
        return float("inf"), "no random number of its own was read"
    u = float(decision["u"])
    if decision["purpose"] == "accept":
        p, q = float(decision["p"]), float(decision["q"])
        right = u * q < p
        wanted = f"u·q = {u * q:.9g} {'<' if right else '≥'} p = {p:.9g} {'accepts' if right else 'rejects'} it"
        return (0.0 if right == decision["accepted"] else max(abs(u * q - p), 1e-300)), wanted
    low, high = float(decision["low"]), float(decision["high"])
    wanted = f"u = {u:.9g} is outside the token's interval [{low:.9g}, {high:.9g})"
    if high <= low:
        return float("inf"), wanted + ", which is empty"
    return max(low - u, u - high if u > high else 0.0, 1e-300 if u == high else 0.0, 0.0), wanted


def decide(cases: Sequence[Case]) -> Decision:
    """Every decision follows from its number, up to rounding. Where a case tells of `partings`, outputs that are not
    the reference's, each must have been seen to be a tie: what decided it lies within rounding of its edge."""
    total = ties = 0
    worst = widest = 0.0
    for index, case in enumerate(cases):
        slack = float(case["slack"])
        for place, decision in enumerate(case["decisions"]):
            total += 1
            off, wanted = _misdrawn(decision)
            allowed = float(decision.get("slack", slack))
            undecided = allowed >= 1  # nothing but rounding was left to draw from
            if decision["u"] is None or (off > allowed and not undecided):
                what = f"{decision['purpose']} of token {decision['token']} at position {decision['position']}"
                return Decision(Verdict.VIOLATED, f"{what}: {wanted}", case=index, place=place)
            ties, worst = ties + (off > 0), max(worst, off if not undecided else 0.0)
            widest = max(widest, allowed if not undecided else 0.0)
    apart = [one for case in cases for one in case.get("partings", ())]
    unseen = [one for one in apart if one["off"] is None or not float(one["off"]) <= float(one["allowed"])]
    if unseen:
        detail = f"{len(unseen)} of {len(apart)} outputs that are not the reference's were not seen to part by rounding"
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; {unseen[0]['what']}; DRF-1 and DRF-2 judge drafts")
    if apart and not ties:
        detail = (
            f"{len(apart)} outputs part from the reference's at ties, all {total} decisions follow; {apart[0]['what']}"
        )
        return Decision(Verdict.TIE_EXPLAINED, detail)
    if ties:
        detail = (
            f"{ties} of {total} decisions lie within rounding of their edge, at worst by {worst:.3g} of {widest:.3g}"
        )
        return Decision(Verdict.TIE_EXPLAINED, detail)
    return Decision(Verdict.EXACT, f"{total} decisions follow from their numbers")
