"""Tests and running evidence against a known law, for decoders that offer nothing but their tokens.

`fixed` judges counts at a sample size fixed beforehand; `eprocess` gathers evidence that stays valid under early stop
and resume; `pit` turns tokens under changing laws into cells of one law. Clauses use `fixed.test` alone;
the rest is for whoever plans a run or gathers evidence over several.
"""

from .eprocess import Bets, Mixture, State, from_json, interval, mean, product, rejects, to_json, update
from .fixed import (
    MOST_SAMPLES,
    Fit,
    Tested,
    binomial_tail,
    g_test,
    noncentrality,
    pooled,
    power,
    sample_size,
    test,
    visible,
)
from .pit import cells, noise, ranked, transform

__all__ = [
    "MOST_SAMPLES",
    "Bets",
    "Fit",
    "Mixture",
    "State",
    "Tested",
    "binomial_tail",
    "cells",
    "from_json",
    "g_test",
    "interval",
    "mean",
    "noise",
    "noncentrality",
    "pooled",
    "power",
    "product",
    "ranked",
    "rejects",
    "sample_size",
    "test",
    "to_json",
    "transform",
    "update",
    "visible",
]
