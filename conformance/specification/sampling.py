"""Clauses on the output law, random streams, sampling parameters and the end of an output."""

from . import MUST, Row

ROWS: tuple[Row, ...] = (
    (
        "LAW-1",
        MUST,
        "The judge itself is exact: accept, residual and bonus of every rule reproduce p over the rationals.",
        "",
        "enumeration over Fraction: zeros, ties, disjoint supports, candidates fewer than the vocabulary",
        "speculative sampling, arXiv 2211.17192; controls N1 N2",
    ),
    (
        "LAW-2",
        MUST,
        "Every sampled decision follows from its random number: acceptance, residual and bonus under p and q.",
        "Taped Traced",
        "each number taken from a tape, p from the reference, q from the trace; T, top-k, top-p, min-p; edges within "
        "rounding are ties",
        "K02 K04 K05",
    ),
    (
        "LAW-3",
        MUST,
        "The same with drafts on purpose: q far from p, disjoint, one-hot, certain, equal; full and no acceptance.",
        "Scripted Taped Traced",
        "as LAW-2, under scripted drafters",
        "K02 K04 K05; controls N1 N3",
    ),
    (
        "LAW-4",
        MUST,
        "Sampled output equals the reference decoder's on the same tape.",
        "Taped",
        "token equality, request by request, two samples of every second one; where rounding parts them, the number "
        "that does lies within rounding of an edge and is named, and all else is as LAW-2 on the decoder's own path",
        "coupling; K02 K03 K04 K05",
    ),
    (
        "LAW-5",
        MUST,
        "The law of the whole transaction is the target's: joint law of the next tokens, exactly.",
        "Scripted Taped",
        "every cell of the numbers of the real code, on a target with rational laws: each edge probed on both sides by "
        "the nearest doubles, looked for by bisection where it is elsewhere; volumes sum to one, the law is right "
        "within 1e-12 and nothing impossible comes for any number; several drafted rounds, two samples of a request; "
        "the same of its own drafts on a tiny model in float64, or in the claimed numbers within their rounding "
        "and the bias that the profile wants",
        "K02 K03 K04 K05; draft lengths that look at the drafted token; comparisons that are not strict",
    ),
    (
        "LAW-6",
        MUST,
        "The law of the first three sampled tokens is the target's, jointly and behind each prefix.",
        "",
        "samples behind prompts at which faults of verification show most, as the drafter's reference tells: Dirichlet "
        "mixtures that end the run once they suffice, then tests at the planned number, both against every law that "
        "rounding explains; the bound of the bias counts all that stands in one cell; for decoders without a tape",
        "K02 K03 K04 K05",
    ),
    (
        "LAW-7",
        MUST,
        "Long sampled outputs on the run's own target lean no way that the engine does not lean without speculation.",
        "",
        "each prompt with speculation and without, under seeds of their own and at one batch size; each output's mean "
        "lean to unlikely tokens, high ids, the likeliest token, the draft, each token under its own prefix: bets that "
        "the difference of a pair is not symmetric, and intervals of its mean; the reference is the other arm where "
        "speculation cannot be switched off; for decoders without a tape",
        "K02 K04 K05 beyond the first rounds",
    ),
    (
        "RNG-1",
        MUST,
        "No random number decides twice, and every decision has its own: draft, accept, residual, bonus.",
        "Taped Traced",
        "ledger of a recording tape against the decisions in the trace, across purposes, rounds, samples and requests",
        "K03; shared noise of draft and residual in a public sampler",
    ),
    (
        "RNG-2",
        MUST,
        "The same seed gives the same output, alone or among neighbours, early or late, with another commit lag; where "
        "that is claimed, whatever the draft lengths, too.",
        "",
        "token equality of repeated sampled requests, as far as the seed contract claims; drafts of one token, drafts "
        "switched off and speculation off under a contract that speaks of them",
        "K03 K07",
    ),
    (
        "RNG-3",
        MUST,
        "Different seeds, and different samples of one request, are different streams; sample 0 does not depend on n.",
        "",
        "outputs under 8 seeds, and of 4 samples; equal ones count where chance rules them out",
        "K03 K07 (seed without effect)",
    ),
    (
        "SMP-1",
        MUST,
        "A greedy row stays greedy in a batch with sampled rows, whichever stands first.",
        "",
        "regret of each token in two orders of one mixed batch; bitwise against the row alone where claimed",
        "K06",
    ),
    (
        "SMP-2",
        MUST,
        "A sampled row is the same alone and among rows with other parameters, budgets and draft lengths.",
        "",
        "token equality as far as the seed contract claims; rows drafted unequally on purpose where that is offered",
        "K06",
    ),
    (
        "SMP-3",
        MUST,
        "Every row of a mixed batch is drawn by its own parameters, with unequal draft lengths.",
        "Scripted Taped Traced",
        "as LAW-2, the rows of a mixed batch in two orders, each drafted a number of tokens of its own",
        "K06",
    ),
    (
        "SMP-4",
        MUST,
        "Penalties and logit bias hold at every place of a span, on accepted, rejected and bonus tokens.",
        "Scripted",
        "regret of each greedy token under the processed law, drafts wrong at every place; own span decides",
        "K08",
    ),
    (
        "SMP-5",
        MUST,
        "min_tokens ends at its very token, at every place of a span.",
        "Scripted",
        "the end of sequence made the best token everywhere, min_tokens 0 to K + 3; drafted right, early, or not",
        "K08",
    ),
    (
        "SMP-6",
        MUST,
        "Penalties and logit bias hold at every place of a sampled span.",
        "Scripted Taped Traced",
        "as LAW-2, under penalties, with drafts near to the processed law and far from it",
        "K08",
    ),
    (
        "SMP-7",
        MUST,
        "Greedy output under penalties and logit bias equals the engine's own without speculation.",
        "",
        "regret of each token; a second decoder without drafter, bitwise where claimed",
        "K08",
    ),
    (
        "SMP-8",
        MUST,
        "A parameter that is not claimed is refused by name; one that is claimed is not refused.",
        "",
        "each field of a request in turn at a value that is not its default",
        "K06 (dropped without a word)",
    ),
    (
        "FIN-1",
        MUST,
        "Output ends with the first end-of-sequence or stop id, wherever it falls in a span; nothing stands behind it.",
        "",
        "each token of a known greedy output made a stop id in turn; reason, usage and tokens exact",
        "K10 K12",
    ),
    (
        "FIN-2",
        MUST,
        "A stop id ends the output inside an accepted span, on its last draft and on the bonus token.",
        "Scripted",
        "perfect and wrong scripted drafters put the stop id at every place of a span, right ones and rejected ones",
        "K10 K05",
    ),
    (
        "FIN-3",
        MUST,
        "max_tokens 1, 2, K, K+1, K+2 are met exactly, by every sample of a request.",
        "",
        "length, reason and usage; lengths and usage of two samples",
        "K11",
    ),
    (
        "FIN-4",
        MUST,
        "A request has exactly one final event, and no token after it; cancelling gives one final event, then silence.",
        "",
        "events recorded until the decoder is idle",
        "K10 K27",
    ),
    (
        "FIN-5",
        MUST,
        "A stop string ends the output with the token that completes it, within and across spans.",
        "",
        "pieces of a known greedy output made stop strings; needs a tokenizer beside the target",
        "K10",
    ),
    (
        "FIN-6",
        MUST,
        "Tokens that mean something elsewhere are tokens like any other: id 0, the last id, the drafter's mask id.",
        "",
        "a bias makes each the target's choice; undrafted, drafted, and drafted as an id one vocabulary below or above",
        "K12",
    ),
)
