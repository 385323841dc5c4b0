"""Counts: how often each cell of a law was seen, jointly and, token by token, behind prefixes.

Half of the error rate goes to evidence that may be looked at after every batch, the mean of e-values over all prefixes,
so that gathering may stop once it suffices; half to tests at the planned number of samples.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import log

from .. import statistics
from ..verdicts import Decision, Verdict
from . import Case

POWER = 0.9  # with which a bias that is called visible behind a prefix would have been seen


def against(cases: Sequence[Case]) -> float:
    """Log of the e-value of all cases together; 0 where no prefix is watched. Its level is `enough`."""
    found = evidence(cases)
    return statistics.mean(found) if found else 0.0


def enough(alpha: float) -> float:
    """The log e-value at which gathering may stop: the law is violated."""
    return -log(alpha / 2)


def evidence(cases: Sequence[Case]) -> list[float]:
    """Log e-values, one for each prefix of each case."""
    return [statistics.log_e(n["p"], n["counts"], float(n["slack"])) for case in cases for n in case.get("nodes", ())]


def decide(cases: Sequence[Case]) -> Decision:
    alpha = min((float(case["alpha"]) for case in cases), default=1.0)
    nodes = [(index, node) for index, case in enumerate(cases) for node in case.get("nodes", ())]
    found = evidence(cases)
    samples = sum(sum(case["counts"]) for case in cases)
    if nodes and statistics.mean(found) >= enough(alpha):
        listed = statistics.e_bh(found, alpha / 2) or [max(range(len(found)), key=found.__getitem__)]
        where = "; ".join(_told(cases[nodes[i][0]], nodes[i][1]) for i in listed[:3])
        chance = min(1.0, 10 ** -min(300.0, statistics.mean(found) / log(10)))
        return Decision(Verdict.VIOLATED, f"{where}; chance {chance:.2g}, {samples} samples", case=nodes[listed[0]][0])
    tests = joint(cases)
    short = [case for case in cases if sum(case["counts"]) < int(case.get("planned", 0))]
    if not short:  # a test at a sample size fixed beforehand, and at no other
        for index, (case, test) in enumerate(zip(cases, tests, strict=True)):
            if test.rejected is not None:
                return Decision(Verdict.VIOLATED, f"{case['label']}: {test.rejected}", case=index)
        p_values = [statistics.p_value(node["p"], node["counts"], float(node["slack"])) for _, node in nodes]
        for place in statistics.holm(p_values, alpha / 4)[:1]:
            index, node = nodes[place]
            told = f"{_told(cases[index], node)}; chance {p_values[place]:.2g}, {samples} samples"
            return Decision(Verdict.VIOLATED, told, case=index)
    bias = max(test.bound for test in tests)
    visible = max(test.visible for test in tests)
    detail = f"{samples} samples; a bias of {visible:.3g} (total variation) or more would have been seen"
    if nodes:
        detail += f", behind its most frequent prefix one of {sighted(cases):.3g} with a chance of {POWER:g}"
    if short:
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; fewer than planned")
    if bias > max(float(case["wanted"]) for case in cases):
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; the bias is only known to be at most {bias:.3g}")
    return Decision(Verdict.HOLDS, detail, delta=bias)


def share(alpha: float, cases: int) -> float:
    """The part of the error rate that one case's joint law is tested at."""
    return alpha / 4 / cases


def joint(cases: Sequence[Case]) -> list[statistics.Tested]:
    """The joint law of each case, tested at its part of the error rate; the last cell is everything else, which may
    hide a bias as large as its probability."""
    alpha, found = share(min((float(case["alpha"]) for case in cases), default=1.0), len(cases)), []
    for case in cases:
        test = statistics.test(case["p"], case["counts"], alpha, float(case["slack"]), len(case["p"]))
        others = float(case["p"][-1])
        seen = {name: min(1.0, getattr(test, name) + others) for name in ("bound", "visible")}
        found.append(replace(test, **seen))
    return found


def sighted(cases: Sequence[Case]) -> float:
    """The bias (total variation) of the token behind the best-known prefix, of those told apart there, that the
    evidence shows with a chance of `POWER`."""
    nodes, alpha = [node for case in cases for node in case["nodes"]], min(float(case["alpha"]) for case in cases)
    rate = alpha / 2 / len(nodes)
    return min(
        float(node["slack"]) + statistics.expected(sum(node["counts"]), len(node["p"]) - 1, rate, POWER)
        for node in nodes
    )


def _told(case: Case, node: Case) -> str:
    """What is wrong behind a prefix: the cell that is farthest off."""
    seen, names = node["counts"], [*map(str, node["tokens"]), "others"]
    mean = [sum(seen) * p for p in node["p"]]
    worst = max(range(len(names)), key=lambda i: abs(seen[i] - mean[i]))
    came = f"token {names[worst]} came {seen[worst]} times of {sum(seen)}, {mean[worst]:.1f} expected"
    return f"{case['label']}, behind {node['after']}: {came}"
