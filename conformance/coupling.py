"""Two decoders on one tape: the decision by which their samples part, and whether rounding is seen to have made it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specqual.contract import Key, Purpose, Request, Round
from specqual.reference.verify import dense

from .bracket import variation
from .draws import Number, drawn, verified
from .drive import Answer
from .evidence import Case
from .kinds import parting
from .lab import Lab


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a sample leaves the reference's, and what may have led it away.

    `decisions` are drafts to judge by the reference's q, beside the decoder's own path. What speaks for rounding lies
    `off` an edge, of a number or of a score, where rounding explains `allowed`; `off` is None where nothing does.
    """

    sample: int
    position: int
    decisions: tuple[Case, ...] = ()
    by: str = "nothing that was looked at"
    off: float | None = None
    allowed: float = 0.0

    def __str__(self) -> str:
        if self.off is None:
            return f"sample {self.sample} parts at position {self.position}, by {self.by}"
        where = f"sample {self.sample} parts at position {self.position}: {self.by} lies {self.off:.3g}"
        return f"{where} from an edge, rounding explains {self.allowed:.3g}"

    def case(self) -> Case:
        """The same in evidence."""
        return {"what": str(self), "off": self.off, "allowed": self.allowed}


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
                yield _parting(lab, own.request, output, right, r, number)
                break
            output += r.committed


def _first(expected: Sequence[int], actual: Sequence[int]) -> int:
    """The first place where two sequences differ; the end of the shorter one if it begins the other."""
    place = parting(expected, actual)
    return min(len(expected), len(actual)) if place is None else place


def _parting(lab: Lab, request: Request, output: list[int], right: Round, r: Round, number: Number) -> Parting:
    slot = parting(right.proposals, r.proposals)
    if slot is not None:
        return _drafted(lab, request, output, right, r, slot, number)
    if len(right.proposals) != len(r.proposals):
        return Parting(r.sample, r.start + 1, by="the number of drafts")
    slot = min(_first(right.committed, r.committed), right.accepted, r.accepted)
    from_q = any(q is not None for q in r.q)
    more = variation(lab.drafter.measured[0].nats, request.sampling.temperature) if from_q else 0.0
    made = [d for d in verified(lab, request, output, r, number, more) if d["position"] == r.start + 1 + slot]
    accepts = [d for d in made if d["purpose"] == Purpose.ACCEPT]
    flipped = (slot < right.accepted) != (slot < r.accepted)
    made = accepts if flipped and accepts else [d for d in made if d["purpose"] != Purpose.ACCEPT]
    return _by_number(r, slot, made)


def _by_number(r: Round, slot: int, made: list[Case]) -> Parting:
    """A parting by the one number that decided a slot; or by a residual that holds no more than rounding moves."""
    place = r.start + 1 + slot
    if made and "left" in made[0]:
        left, moved = float(made[0]["left"]), 3 * float(made[0]["moved"])
        return Parting(r.sample, place, by="the mass of the residual, all of it,", off=left, allowed=moved)
    if not made or made[0]["u"] is None or made[0]["slack"] >= 1:
        return Parting(r.sample, place, by="a decision that its number does not settle")
    by = f"u = {made[0]['u']:.12g} of {made[0]['purpose']}"
    return Parting(r.sample, place, by=by, off=nearness(made[0]), allowed=made[0]["slack"])


def _drafted(
    lab: Lab, request: Request, output: list[int], right: Round, r: Round, slot: int, number: Number
) -> Parting:
    """A parting by a draft: drawn from the reference's q by its number, or by scores: that of a choice, or those of
    candidates that are not the reference's."""
    twin, tokens, place = lab.drafter, (*request.prompt, *output), r.start + 1 + slot
    nats, token = twin.measured[0].nats, r.proposals[slot]
    q, theirs, ours = dense(right.q[slot], np.zeros(lab.judge.target.vocab_size)), right.q[slot], r.q[slot]
    if q is not None and theirs is not None and ours is not None and set(theirs.ids) == set(ours.ids):
        key = Key(request.seed, r.sample, r.start + 1, place, Purpose.DRAFT)
        made = drawn(key, token, q, variation(nats, request.sampling.temperature), number)
        return replace(_by_number(r, slot, [made]), decisions=(made,))
    if theirs is not None:
        edges = twin.sampled(tokens, r, request.sampling)["edge"]
        off, by = edges[slot] if slot < len(edges) else None, "the logit of a candidate"
    else:
        found = twin.greedy(tokens, r, nats)
        scores = [found[name][slot] for name in ("regret", "edge") if slot < len(found[name])]
        off, by = max(scores) if scores and None not in scores else None, f"the score of draft {token}"
    return Parting(r.sample, place, (), by, off, nats)
