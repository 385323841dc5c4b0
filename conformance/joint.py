"""The joint law of a target's first tokens, in cells: its likely outputs, and everything else."""

import numpy as np

from specqual.contract import Request

from .bracket import bracket, variation
from .judge import Judge


def joint_cells(judge: Judge, request: Request, nats: float) -> tuple[dict[tuple[int, ...], int], list[float], float]:
    """Likely first three tokens, their exact probabilities, the last cell being everything else, and the total
    variation that rounding by `nats` explains: the mean over each token's prefixes, added up."""
    likely, slack = {(): 1.0}, 0.0
    for width in (8, 4, 4):
        longer: dict[tuple[int, ...], float] = {}
        slack += (1 - sum(likely.values())) * variation(nats, request.sampling.temperature)
        for prefix, mass in likely.items():
            given = bracket(judge.row(request, prefix), request.sampling, nats)
            slack += mass * given.slack
            for token in np.argsort(-given.law, kind="stable")[:width].tolist():
                if given.law[token] and token not in judge.target.eos_ids:
                    longer[(*prefix, token)] = mass * float(given.law[token])
        likely = longer
    kept = sorted(likely, key=lambda tokens: (-likely[tokens], tokens))[:15]
    p = [likely[tokens] for tokens in kept]
    cells = {tokens: place for place, tokens in enumerate(kept)}
    return cells, [*p, max(0.0, 1.0 - sum(p))], min(1.0, slack)
