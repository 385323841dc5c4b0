"""The joint law of a target's first tokens, in cells: its likely outputs, and everything else."""

import numpy as np

from specqual.contract import Request

from .bracket import bracket, variation
from .judge import Judge
from .statistics import reach

WIDTHS = (8, 8, 8)  # tokens behind a prefix that may be told apart


def joint_cells(
    judge: Judge, request: Request, nats: float, samples: int, alpha: float
) -> tuple[dict[tuple[int, ...], int], list[float], float]:
    """Likely first three tokens, their exact probabilities, the last cell being everything else, and the total
    variation that rounding by `nats` explains: the mean over each token's prefixes, added up.

    What is told apart is a compromise, so that the bound of a bias is least: the more cells, the further chance alone
    moves so many samples, as it does on the average and as it may at rate alpha; and everything else may hide a bias of
    its own mass.
    """
    likely, slack = {(): 1.0}, 0.0
    for width in WIDTHS:
        longer: dict[tuple[int, ...], float] = {}
        slack += (1 - sum(likely.values())) * variation(nats, request.sampling.temperature)
        for prefix, mass in likely.items():
            given = bracket(judge.row(request, prefix), request.sampling, nats)
            slack += mass * given.slack
            for token in np.argsort(-given.law, kind="stable")[:width].tolist():
                if given.law[token] and token not in judge.target.eos_ids:
                    longer[(*prefix, token)] = mass * float(given.law[token])
        likely = longer
    order = sorted(likely, key=lambda tokens: (-likely[tokens], tokens))
    masses = np.array([0.0, *(likely[tokens] for tokens in order)])
    moved = np.cumsum(np.sqrt(masses * (1 - masses) / (2 * np.pi * samples)))
    far = np.array([reach(samples, cells, alpha) for cells in range(1, len(masses) + 1)])
    kept = order[: int((1 - np.cumsum(masses) + moved + far).argmin())]
    p = [likely[tokens] for tokens in kept]
    cells = {tokens: place for place, tokens in enumerate(kept)}
    return cells, [*p, max(0.0, 1.0 - sum(p))], min(1.0, slack)
