"""Tests and running evidence against a known law, for decoders that offer nothing but their tokens.

`fixed` judges counts at a sample size fixed beforehand; `tally` judges them against a law known up to a tolerance,
under early stop too; `eprocess` gathers evidence that is stored and resumed; `pit` turns tokens under changing laws
into cells of one law; `pairs` compares two conditions request by request; `multiple` says which of many tests reject,
`budget` at which error rates a run may test at all.
"""

from .eprocess import (
    Bets,
    Mixture,
    State,
    from_dict,
    from_json,
    interval,
    mean,
    product,
    rejects,
    to_dict,
    to_json,
    update,
)
from .fixed import (
    MOST_SAMPLES,
    Fit,
    Tested,
    binomial_tail,
    g_test,
    noncentrality,
    pooled,
    power,
    reach,
    sample_size,
    test,
    visible,
)
from .multiple import e_bh, holm
from .pairs import excess, seen
from .pit import cells, noise, ranked, transform
from .tally import divergence, expected, likeliest, log_e, p_value

__all__ = [
    "MOST_SAMPLES",
    "Bets",
    "Fit",
    "Mixture",
    "State",
    "Tested",
    "binomial_tail",
    "cells",
    "divergence",
    "e_bh",
    "excess",
    "expected",
    "from_dict",
    "from_json",
    "g_test",
    "holm",
    "interval",
    "likeliest",
    "log_e",
    "mean",
    "noise",
    "noncentrality",
    "p_value",
    "pooled",
    "power",
    "product",
    "ranked",
    "reach",
    "rejects",
    "sample_size",
    "seen",
    "test",
    "to_dict",
    "to_json",
    "transform",
    "update",
    "visible",
]
