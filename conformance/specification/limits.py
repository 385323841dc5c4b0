"""Clauses on the ends of things: contexts, budgets, batches, pools, widths."""

from . import MUST, SHOULD, Row

ROWS: tuple[Row, ...] = (
    (
        "LIM-1",
        MUST,
        "Greedy output is right up to the very end of the context, where fewer tokens than K are left.",
        "",
        "prompts that leave 1 to K + 2 tokens of room, with the configured drafter and with perfect scripted drafts; "
        "regret of each token; a copy of the checkpoint with a shorter context where its own is long",
        "K29 K11",
    ),
    (
        "LIM-2",
        MUST,
        "Output ends with the last place of the context; a request that cannot be served is refused by an event, and "
        "the others do not notice.",
        "",
        "tokens, reason and usage at every room up to K + 2; prompts that fill the context, between two good requests",
        "K29 K27",
    ),
    (
        "LIM-3",
        MUST,
        "Beyond the drafter's own limit of positions the target goes on: greedy output stays right.",
        "",
        "a copy of the drafter that says so of fewer positions than the output has; regret of each token",
        "K29",
    ),
    (
        "LIM-4",
        SHOULD,
        "No draft stands beyond the drafter's own limit of positions.",
        "Traced",
        "as DRF-1, on that copy",
        "K29 (a drafter that read behind its table of positions)",
    ),
    (
        "LIM-5",
        MUST,
        "More requests than a batch holds are all served, and each is right with every slot and most pages taken.",
        "",
        "greedy requests of unequal lengths, two more than max_batch up to 18; regret of each token",
        "K29 (row indices times strides in narrow integers, buffers of one row a sequence) K27",
    ),
    (
        "LIM-6",
        MUST,
        "A long output is right to its end, with sliding windows passed many times.",
        "",
        "regret of each token of an output as long as the profile asks and the context allows; of several where the "
        "end of sequence comes first",
        "K16 K29",
    ),
    (
        "LIM-7",
        MUST,
        "A request of more than 11,000 rounds, each with a rejected draft, is served to its end.",
        "Scripted",
        "regret of each token on a table of laws, whose judge is cheap at any length; INCONCLUSIVE where they take "
        "longer than 10 minutes, or 40 seconds in a quick run",
        "K29 (an engine that died after 11,000 steps)",
    ),
    (
        "LIM-8",
        MUST,
        "Behind a long stretch of rounds without drafts they are the reference drafter's again.",
        "Scripted Traced",
        "as DRF-1, behind a prompt of 256 tokens and rounds that a scripted drafter left undrafted",
        "K22 K29 (no drafts any more after 250 tokens; positions in a byte)",
    ),
)
