"""Clauses on liveness and greedy equality."""

from . import MUST, SHOULD, Row

ROWS: tuple[Row, ...] = (
    (
        "LIVE-1",
        MUST,
        "Given a drafter, the decoder speculates: drafts are proposed and go through verification.",
        "",
        "counted from the rounds of greedy and sampled requests, which takes a trace; none at all, or a claim to draft "
        "nothing, is INCONCLUSIVE, and the run not live",
        "vacuous passes of published gates",
    ),
    (
        "LIVE-2",
        MUST,
        "Rounds of every shape occur: a rejection at once, a partial acceptance, a full acceptance, no draft at all.",
        "Traced",
        "counted from the rounds of the whole run, scripted ones included; a shape that never occurred is INCONCLUSIVE",
        "K01 K05 K13 K19: faults that show in one shape of round only",
    ),
    (
        "LIVE-3",
        MUST,
        "The trace is a history of the output: rounds join up, and what they commit is what was emitted.",
        "Traced",
        "recount of every round: anchor, start, accepted prefix, committed tokens, draft length at most K",
        "K30",
    ),
    (
        "GE-1",
        MUST,
        "Every greedy token is a best token of the target under its own prefix, with the configured drafter.",
        "",
        "regret of each emitted token in the float64 reference, prompts of many lengths from 1",
        "K01 K13 K19; leaving the target's path near token 30 in public reports",
    ),
    (
        "GE-2",
        MUST,
        "Greedy output with speculation equals greedy output without it.",
        "",
        "a second decoder without drafter; bitwise where claimed, else each difference must be a tie",
        "K01 K13 K19 K31",
    ),
    (
        "GE-3",
        MUST,
        "Greedy output does not depend on the draft length, for every K from 1 to the checkpoint's.",
        "",
        "regret of each token, one decoder per K",
        "K01 K13 (a cap on persisted rows shows only above it)",
    ),
    (
        "GE-4",
        MUST,
        "Greedy output does not depend on the drafts: perfect, wrong, wrong at j, right-wrong-right, one token ahead, "
        "random, empty, end of sequence, mask id, out of range, changing K.",
        "Scripted",
        "regret of each token under scripted drafters",
        "K01 K12 K13 K19",
    ),
    (
        "GE-5",
        MUST,
        "Greedy output of a request does not depend on its neighbours in the batch.",
        "",
        "requests of unequal lengths served together, regret of each token; bitwise against alone where claimed",
        "K14",
    ),
    (
        "GE-6",
        MUST,
        "Greedy output is right for any request: drawn prompts, lengths and draft patterns.",
        "",
        "Hypothesis draws and shrinks; regret of each token",
        "K01 K13 K19",
    ),
    (
        "GE-7",
        SHOULD,
        "The engine's own log-probabilities of its greedy output agree with the reference's.",
        "Scoring",
        "scored in a second pass and compared token by token; the measured envelope is the tolerance; margins of near "
        "ties may move by 1.4 times the upper bound of the dtype's spread, root mean square, without error rate",
        "K30 K31; adjudication of ties in the engine's own numerics",
    ),
    (
        "GE-8",
        MUST,
        "Where no bits are promised, speculation flips greedy tokens at near ties only, and no more of them than "
        "rounding does.",
        "",
        "each token against the engine without speculation under the same prefix, requests in batches; flips where "
        "rounding hardly causes any are bet on request by request, beside two runs without speculation, one in "
        "batches and one alone; ties in the engine's own scores, too, where it offers them",
        "K04 K31; divergence of speculative from plain output in engines whose kernels depend on the batch",
    ),
)
