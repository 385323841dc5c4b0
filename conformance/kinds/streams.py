"""Streams: outputs of random streams, and which of them must be one and which must not."""

from collections.abc import Sequence
from math import comb, exp, log

from ..verdicts import Decision, Verdict
from . import Case


def decide(cases: Sequence[Case]) -> Decision:
    """Whether equal outputs within a family of streams are more than chance.

    That any g of n streams meet in an output with P(output)^(g - 1) < c happens at a rate below comb(n, g)·c, so c is
    alpha, shared among families and sizes g, by that number.
    """
    undecided = False
    for index, case in enumerate(cases):
        names, outputs, families = case["names"], case["outputs"], case["families"]
        for one, other in case["equal"]:
            if outputs[one] != outputs[other]:
                detail = f"{names[one]} and {names[other]} are one stream, and their outputs differ"
                return Decision(Verdict.VIOLATED, detail, case=index)
        for family in (family for family in families if len(family) > 1):
            share = float(case["alpha"]) / len(cases) / len(families) / (len(family) - 1)
            groups = [[other for other in family if outputs[other] == outputs[one]] for one in family]
            for group in groups:
                chance = (len(group) - 1) * (case["logprob"][group[0]] or 0.0)
                if chance < log(share / comb(len(family), len(group))):
                    same = " and ".join(names[one] for one in group)
                    detail = f"{same} have the same output, and that by chance with probability {exp(chance):.2g}"
                    return Decision(Verdict.VIOLATED, detail, case=index)
            undecided |= len(groups[0]) == len(family)
    if undecided:
        return Decision(Verdict.INCONCLUSIVE, "the target is so certain here that equal outputs are no surprise")
    return Decision(Verdict.EXACT, "outputs of different streams are no more alike than chance has it")
