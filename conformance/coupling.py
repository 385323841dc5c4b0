"""Two decoders on one tape: the decision by which their samples part, and how near its number lies to an edge."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specqual.contract import Key, Purpose, Request, Round
from specqual.reference.verify import dense

from .bracket import variation
from .drafter import DraftTwin
from .draws import Number, drawn, verified
from .drive import Answer
from .evidence import Case
from .kinds import parting
from .lab import Lab


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a sample leaves the reference's: the decisions of that round that differ, or may have made it differ."""

    sample: int
    position: int
    decisions: tuple[Case, ...]

    def __str__(self) -> str:
        if not self.decisions:
            return f"sample {self.sample} parts in the round from position {self.position} on, by no number of it"
        one = min(self.decisions, key=nearness)
        return (
            f"sample {self.sample} parts at position {one['position']}: u = {one['u']:.12g} of {one['purpose']} lies "
            f"{nearness(one):.3g} from an edge, rounding explains {one['slack']:.3g}"
        )


def nearness(decision: Case) -> float:
    """How far (in probability) a decision's number is from the nearest edge of what it decided."""
    if decision["u"] is None:
        return float("inf")
    u = float(decision["u"])
    if decision["purpose"] == Purpose.ACCEPT:
        return abs(u * float(decision["q"]) - float(decision["p"]))
    inside = [float(decision[end]) for end in ("low", "high") if 0 < float(decision[end]) < 1]
    return min((abs(u - end) for end in inside), default=1.0)


def partings(lab: Lab, theirs: Answer, own: Answer, number: Number) -> Iterator[Parting]:
    """The first difference of each sample's rounds from the reference's on the same tape; both are traced."""
    for sample in range(own.request.n):
        output: list[int] = []
        for right, r in zip(theirs.rounds_of(sample), own.rounds_of(sample), strict=False):
            if (right.proposals, right.accepted, right.committed) != (r.proposals, r.accepted, r.committed):
                yield Parting(sample, r.start + 1, tuple(_decisions(lab, own.request, output, right, r, number)))
                break
            output += r.committed


def _decisions(lab: Lab, request: Request, output: list[int], right: Round, r: Round, number: Number) -> Iterator[Case]:
    slot = parting(right.proposals, r.proposals)
    if slot is None:
        yield from verified(lab, request, output, r, number)
        return
    q = dense(right.q[slot], np.zeros(lab.judge.target.vocab_size))
    if q is None:
        return
    token = r.proposals[slot]
    slack = variation(DraftTwin.of(lab).measured[0].nats, request.sampling.temperature)
    key = Key(request.seed, r.sample, r.start + 1, r.start + 1 + slot, Purpose.DRAFT)
    # a token that is no candidate of the reference's has no interval: whether it may be one is what DRF-2 decides
    yield drawn(key, token, q, slack, number) if q[token] else drawn(key, token, q, 1.0, number)
