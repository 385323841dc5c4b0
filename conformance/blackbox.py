"""Samples of a black box: the same requests under new seeds, until the evidence suffices or the plan is used up."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log
from random import Random

from specqual.contract import Decoder, Request

from .contexts import Node, nodes
from .drive import serve
from .evidence import Case
from .joint import joint_cells
from .judge import Judge
from .kinds import counts
from .statistics import log_e, mean

TOKENS = 3  # whose law is judged
BATCH = 16  # requests served together
DENSITY = 1.25  # between two points of a trajectory, a factor of samples
CEILING = 1000.0  # of a trajectory, in powers of ten


@dataclass(slots=True)
class Watched:
    """One request with the cells that its outputs are counted in."""

    request: Request
    cells: dict[tuple[int, ...], int]
    p: list[float]
    slack: float
    nodes: list[Node]
    planned: int
    counts: list[int]
    trajectory: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])

    @classmethod
    def of(cls, judge: Judge, request: Request, nats: float, planned: int, alpha: float) -> "Watched":
        """Watch a request for at least `planned` samples, in whole batches; its joint law is tested at rate alpha."""
        planned = -(-planned // BATCH) * BATCH
        cells, p, slack = joint_cells(judge, request, nats, planned, alpha / 2)
        return cls(request, cells, p, slack, nodes(judge, request, nats, TOKENS), planned, [0] * len(p))

    def see(self, output: Sequence[int]) -> None:
        self.counts[self.cells.get(tuple(output[:TOKENS]), len(self.cells))] += 1
        for node in self.nodes:
            node.see(output[:TOKENS])

    def mark(self) -> None:
        """Add a point to the trajectory: samples, and the power of ten of the evidence of this request alone."""
        samples = sum(self.counts)
        if samples >= DENSITY * self.trajectory[-1][0] or samples == self.planned:
            power = mean([log_e(node.p, node.counts, node.slack) for node in self.nodes]) / log(10)
            self.trajectory.append((samples, round(min(power, CEILING), 3)))

    def case(self, target: str, alpha: float, wanted: float) -> Case:
        label = f"{self.request.max_tokens} tokens behind {list(self.request.prompt)} on {target}"
        case: Case = {"label": label, "prompt": self.request.prompt, "planned": self.planned}
        case |= {"p": self.p, "counts": self.counts, "slack": self.slack, "alpha": alpha, "wanted": wanted}
        return case | {"nodes": [node.case() for node in self.nodes], "trajectory": self.trajectory}


@dataclass(frozen=True, slots=True)
class Seen:
    """Rounds with an accepted draft, and with a rejected one, where the decoder is Traced."""

    accepted: int = 0
    rejected: int = 0


def gather(decoder: Decoder, watched: Sequence[Watched], chance: Random, alpha: float) -> Seen:
    """Serve batches of every request in turn; ends early, after whole turns, once the evidence rejects at alpha."""
    size, accepted, rejected = min(BATCH, decoder.claims.limits.max_batch), 0, 0
    while any(sum(one.counts) < one.planned for one in watched):
        for one in watched:
            batch = [replace(one.request, seed=chance.randrange(2**63)) for _ in range(BATCH)]
            for start in range(0, BATCH, size):
                for answer in serve(decoder, batch[start : start + size]):
                    one.see(answer.output)
                    accepted += sum(r.accepted > 0 for r in answer.rounds or ())
                    rejected += sum(r.accepted < len(r.proposals) for r in answer.rounds or ())
            one.mark()
        cases = [one.case("", alpha, 0.0) for one in watched]
        if counts.against(cases) >= counts.enough(alpha):
            for one in watched:
                one.mark()
            break
    return Seen(accepted, rejected)
