"""Cells: the law of real code, summed over cells of its numbers, against the law that it should have."""

from collections.abc import Sequence
from math import fsum

from ..verdicts import Decision, Verdict
from . import Case

DOUBLE = 1e-12  # what float64 may make of probabilities on their way from logits to the edges of a number
CERTAIN = 1e-9  # by which masses that were written down may miss one


def _off(case: Case) -> tuple[float, str]:
    """The total variation between both laws, and the outcome that they differ most in."""
    expected, found = ({str(outcome): float(mass) for outcome, mass in case[name]} for name in ("expected", "found"))
    for name, masses in (("expected", expected), ("found", found)):
        if abs(fsum(masses.values()) - 1) > CERTAIN:
            raise ValueError(f"{name}: masses add up to {fsum(masses.values())}, not to 1")
    apart = {outcome: found.get(outcome, 0.0) - expected.get(outcome, 0.0) for outcome in {**expected, **found}}
    worst = max(apart, key=lambda outcome: abs(apart[outcome]))
    what = f"{worst} has probability {found.get(worst, 0.0):.12g}, expected {expected.get(worst, 0.0):.12g}"
    return fsum(map(abs, apart.values())) / 2, what


def decide(cases: Sequence[Case]) -> Decision:
    """Within the tolerance, in total variation; and, where it is that of float64, nothing impossible in any cell, be it
    as small as one number. Numbers that round more must keep the law within what is `wanted`, too."""
    worst = rounded = tolerance = 0.0
    wanted = 1.0
    for index, case in enumerate(cases):
        allowed, exact = float(case["tolerance"]), float(case["tolerance"]) <= DOUBLE
        possible = {str(outcome) for outcome, _ in case["expected"]}
        impossible = [(outcome, mass) for outcome, mass in case["found"] if str(outcome) not in possible]
        off, what = _off(case)
        if exact and impossible:
            outcome, mass = impossible[0]
            return Decision(
                Verdict.VIOLATED, f"{case['what']}: {outcome} is impossible, and comes with {mass:.3g}", case=index
            )
        if off > allowed:
            detail = f"{case['what']}: off by {off:.6g} (total variation), rounding explains {allowed:.3g}: {what}"
            return Decision(Verdict.VIOLATED, detail, case=index)
        if exact:
            worst = max(worst, off)
        else:
            rounded, tolerance, wanted = max(rounded, off), max(tolerance, allowed), min(wanted, float(case["wanted"]))
    cells, edges = (sum(int(case[name]) for case in cases) for name in ("cells", "edges"))
    detail = f"{len(cases)} laws in {cells} cells, {edges} edges probed from both sides, float64 off by {worst:.3g}"
    if tolerance:
        detail = f"{detail}, narrower numbers by {rounded:.3g} where rounding explains {tolerance:.3g}"
        if rounded > wanted:
            return Decision(Verdict.INCONCLUSIVE, f"{detail}, and a bias of {wanted:g} or more had to be excluded")
        return Decision(Verdict.HOLDS, detail, delta=rounded)
    return Decision(Verdict.EXACT, detail)
