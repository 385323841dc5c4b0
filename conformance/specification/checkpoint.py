"""Clauses on checkpoints and the drafter."""

from . import MUST, Row

ROWS: tuple[Row, ...] = (
    (
        "CKP-1",
        MUST,
        "The method in use is reported, and it is the checkpoint's.",
        "",
        "claims.method against the drafter's config.json",
        "K23",
    ),
    (
        "CKP-2",
        MUST,
        "Every tensor of the drafter is used or refused: deleted, renamed, misshapen, retyped, permuted.",
        "Traced Inspectable",
        "changed copies of the checkpoint; a permuted tensor must change proposals, all else must be refused by name",
        "K23",
    ),
    (
        "CKP-3",
        MUST,
        "Every tensor of the target is used or refused: deleted, renamed, misshapen, retyped, permuted.",
        "Inspectable",
        "as CKP-2; a permuted tensor must change scores",
        "K23",
    ),
    (
        "CKP-4",
        MUST,
        "Keys that shape the drafter have no silent default, unknown keys are refused, and a nested key wins.",
        "Traced Inspectable",
        "changed copies of config.json",
        "K23",
    ),
    (
        "CKP-5",
        MUST,
        "Truncated and malformed files are refused with an error that names the file.",
        "Inspectable",
        "changed copies of the checkpoint",
        "K23",
    ),
    (
        "DRF-1",
        MUST,
        "Proposals of every round equal the reference drafter's on the same committed tokens.",
        "Traced",
        "greedy rounds recomputed, each draft behind the decoder's own drafts before it: features, positions, masks, "
        "window, convolution, selector; a tie only within the drafter's measured envelope",
        "K20 K21 K22",
    ),
    (
        "DRF-2",
        MUST,
        "q of every round equals the reference drafter's, and the draft was drawn from it.",
        "Traced Taped",
        "sampled rounds recomputed behind the decoder's own drafts; total variation, candidates, u within the interval",
        "K02 K20 K21 K22",
    ),
    (
        "DRF-3",
        MUST,
        "The drafter's context rows equal a fresh replay of the committed tokens.",
        "Inspectable Traced",
        "names, rows and positions after every commit, and the relative error of each row of draft keys and values",
        "K20 K22",
    ),
)
