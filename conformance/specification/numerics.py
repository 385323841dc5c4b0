"""Clauses on numbers: stored formats, kernels, and what is no number."""

from . import MUST, Row

MADE = "checkpoints made on the spot: NVFP4 in both published layouts, and FP8 with an FP8 cache"
BESIDE = "standard normal inputs in the sizes of the target at hand"

ROWS: tuple[Row, ...] = (
    (
        "NUM-1",
        MUST,
        "Quantised targets mean what their formats say: every greedy token is a best token of the exactly decoded one.",
        "",
        f"{MADE}; regret of each token in the float64 reference, in float64 where the decoder has it",
        "K23 (a scale left at one, packed codes taken for numbers); swapped nibbles, scales of another row",
    ),
    (
        "NUM-2",
        MUST,
        "The same for the engine's own log-probabilities.",
        "Scoring",
        f"{MADE}; scores against the reference's, within rounding of the dtype, 1e-9 nats in float64",
        "K23 K31",
    ),
    (
        "NUM-3",
        MUST,
        "The drafts of a quantised drafter are those of the exactly decoded one.",
        "Traced",
        "the drafter at hand, quantised on the spot in every format; each draft against the reference drafter's choice",
        "K23 (a packed weight sliced as if it were dense)",
    ),
    (
        "NUM-4",
        MUST,
        "NaN and infinities in a target never make a token that is none: every round commits at least one of the "
        "vocabulary, and requests that do not meet them are served as always.",
        "",
        "copies of the target with a row of NaN, inf or -inf in its head or its embedding; greedy and sampled requests "
        "side by side, one of them behind such a row",
        "K12 K31",
    ),
    (
        "NUM-5",
        MUST,
        "A drafter's law that is none (NaN, infinite, negative) is no law: the round commits at least one token, and "
        "it is the target's.",
        "Scripted",
        "scripted proposals with such laws; regret of each greedy token, vocabulary of each sampled one, none of whose "
        "drafts may have been accepted where that needs q",
        "K12",
    ),
    (
        "NUM-6",
        MUST,
        "A linear kernel reads every stored weight as its format says.",
        "Dissectable",
        "rows of the identity through weights that hold every code and every scale; each entry within one rounding",
        "K23; an exact reference that decodes wrongly is found in tests",
    ),
    (
        "NUM-7",
        MUST,
        "Every kernel is about as exact as its plain definition evaluated in the same dtype.",
        "Dissectable",
        f"{BESIDE}; largest error against float64, at most twice the definition's own and a rounding of the sums",
        "K31",
    ),
    (
        "NUM-8",
        MUST,
        "Attention back ends are exact on the DFlash geometry in bfloat16: blocks of 8 queries, 32 heads of 128 on 8 "
        "key heads, a window of 2,048.",
        "Dissectable",
        "standard normal inputs, causal and not, short and past the window; largest and root mean square error against "
        "float64, at most twice those of torch's own bfloat16 attention; how far two back ends are apart is reported "
        "beside the public figure 0.0078125, whose input law was not published",
        "K31; a public report of SDPA beside FlashAttention",
    ),
    (
        "NUM-9",
        MUST,
        "A kernel's bits for a row depend neither on the rows beside it, nor on its place, nor on where its span was "
        "cut.",
        "Dissectable",
        "where bitwise is claimed: spans alone against batches of 1 to 17 in any order, spans of 1 to 16 in two pieces",
        "K31; other sums for other shapes are why greedy output leaves the target's path",
    ),
)
