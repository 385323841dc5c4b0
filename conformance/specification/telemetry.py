"""Clauses on what a decoder tells about itself, and on its limits."""

from . import MUST, SHOULD, Row

ROWS: tuple[Row, ...] = (
    (
        "TEL-1",
        MUST,
        "Usage is the number of prompt tokens and of emitted tokens, for several samples together, stopped and "
        "cancelled requests too.",
        "",
        "recount of the events of batches: samples, stop ids inside a span, cancellations",
        "K30 K27",
    ),
    (
        "TEL-2",
        MUST,
        "The deltas of a stream, joined sample by sample, are its output; asking for log-probabilities changes none.",
        "",
        "the same requests alone and without log-probabilities, as far as greedy or seeded output is promised to "
        "repeat; against the trace where there is one",
        "K30",
    ),
    (
        "TEL-3",
        MUST,
        "Log-probabilities are those of the target's raw law at every place of a span, and lists of the best hold the "
        "best, in order.",
        "",
        "float64 reference under each token's own prefix, within rounding; accepted, correction and bonus tokens on "
        "purpose where drafts can be scripted, greedy and sampled",
        "K30",
    ),
    (
        "TEL-4",
        MUST,
        "Counters move by what was done: rounds, drafts that were made, drafts that became output, passes, tokens.",
        "Counted",
        "differences before and after against a recount of the trace, or where there is none of the events, and "
        "against one another; drafts behind the end, short rounds, cancellations",
        "K30 K27",
    ),
    (
        "TEL-5",
        MUST,
        "Measured acceptance of sampled drafts is what the claimed rule makes of p and q: Σ min(p, q) for ratio, p(d) "
        "for drafts that count as certain or must meet the target's draw.",
        "Traced",
        "each judged draft of the trace beside its chance, p from the reference, q from the trace; their means at each "
        "slot of each drafter, and over all slots with none making up for another, within what chance explains at a "
        "stated error rate, in place of a floor; configured drafter, and scripted ones",
        "K30 K04; mean-acceptance gates with a number that somebody stored",
    ),
    (
        "TEL-6",
        SHOULD,
        "As many drafts of a greedy output are accepted, by the counters, as of the reference drafter's along the same "
        "output.",
        "Counted",
        "rounds and accepted drafts of each request against the reference drafter, in place of a floor; without "
        "outputs on which rounding decides, or a policy that drafts less than there is room for, or with no selector",
        "K20 K21 K22 K30: a weak drafter in an engine that shows no trace",
    ),
)
