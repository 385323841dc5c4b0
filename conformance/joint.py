"""Joint laws of the first tokens: of the real code path by path, and of a target's likely outputs.

The table target has four tokens and laws that, like every law that a rule derives from them, have few denominators.
"""

from fractions import Fraction
from time import monotonic

import numpy as np

from specqual.contract import Decoder, Key, Proposal, Purpose, Request, Round, ScriptContext, Tokens, Traced
from specqual.reference.verify import residual

from .bracket import bracket, variation
from .drive import DecoderError, guarded
from .judge import Judge
from .lab import scripted, taped
from .statistics import reach
from .tapes import Cells

PATIENCE = 120.0  # seconds for one path
WIDTHS = (8, 8, 8)  # tokens behind a prefix that may be told apart
LAWS = {"": "1/2 1/4 1/4 0", "0": "1/4 1/4 1/2 0", "1": "1/2 0 1/4 1/4", "2": "1/4 1/2 1/4 0", "3": "1 0 0 0"}
DRAFTERS = {
    "far": {"": "1/4 1/2 1/4 0", "0": "1/2 1/4 0 1/4", "1": "1/4 1/4 1/2 0", "2": "1/2 1/4 1/4 0"},
    "narrow": {"": "0 1/2 1/2 0", "0": "0 0 1/2 1/2", "1": "0 1/2 1/2 0"},
    "equal": LAWS,
}


def table_law(table: dict[str, str], last: int) -> list[Fraction]:
    return [Fraction(number) for number in table.get(str(last), table[""]).split()]


def cuts_of(q: dict[str, str]) -> dict[Purpose, list[Fraction]]:
    """Edges of every decision that may occur: ratios for acceptance, cumulative sums for everything drawn."""
    inside = lambda values: [v for v in values if 0 < v < 1]  # noqa: E731
    ratios: list[Fraction] = []
    sums: list[Fraction] = []
    for last in range(4):
        p, draft = np.array(table_law(LAWS, last), object), np.array(table_law(q, last), object)
        ratios += [a / b for a, b in zip(p, draft, strict=True) if b]
        points = [np.array([Fraction(token == i) for i in range(4)], object) for token in range(4)]
        for drawn in (p, residual(p, draft), *(residual(p, point) for point in points)):
            sums += list(np.cumsum(drawn))
        ratios += list(p)  # the one-hot rule
    return {Purpose.ACCEPT: inside(ratios), Purpose.RESIDUAL: inside(sums), Purpose.BONUS: inside(sums)}


def path_law(
    decoder: Decoder, request: Request, q: dict[str, str], tokens: int, drafts: int
) -> tuple[dict[tuple[int, ...], Fraction], list[Round]]:
    """The exact law of the first tokens, the prompt's certain successor included, over every path of the real code, and
    the rounds of all paths, as far as there is a trace."""
    cuts, start = cuts_of(q), len(request.prompt)

    def edges(key: Key) -> list[Fraction]:
        return [] if key.position == start else cuts.get(key.purpose, [])  # the token behind the prompt is certain

    cells, total, rounds = Cells(edges), dict[tuple[int, ...], Fraction](), list[Round]()

    def script(context: ScriptContext) -> Proposal:
        if context.round_index > 1:  # one drafted round decides; behind a rejection the next round drafts nothing
            return Proposal.certain(())
        return cells.drafts(lambda ids: table_law(q, ids[-1]), context.tokens, min(drafts, context.max_draft))

    with taped(decoder, cells), scripted(decoder, script):
        while True:
            output: list[int] = []
            request_id, stop, ended = guarded("submit", lambda: decoder.submit(request)), monotonic() + PATIENCE, False
            while len(output) < tokens and not ended:
                if monotonic() > stop:
                    raise DecoderError(f"{tokens} tokens did not come within {PATIENCE:g} seconds")
                for event in (e for e in guarded("step", decoder.step) if e.request_id == request_id):
                    if isinstance(event, Tokens):
                        output += event.ids
                    else:
                        ended = True
            if not ended:
                guarded("cancel", lambda i=request_id: decoder.cancel(i))
            if isinstance(decoder, Traced):
                rounds += guarded("rounds", lambda i=request_id: decoder.rounds(i))
            key = tuple(output[:tokens])
            total[key] = total.get(key, Fraction(0)) + cells.weight
            if not cells.advance():
                return total, rounds


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
