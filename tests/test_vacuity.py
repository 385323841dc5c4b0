"""Every chapter proves that its hazard occurred: without the feature that brings it, its clauses are INCONCLUSIVE, and
with everything drawn they are decided."""

import pytest

from specqual import fixtures
from specqual.conformance.check import run
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.features import FEATURES, features
from specqual.conformance.lab import Run
from specqual.contract import Setup
from specqual.decoder import make

PASSED = {"EXACT", "HOLDS", "TIE-EXPLAINED"}
SETUP = Setup(target=fixtures.path("nano/hybrid"), draft=fixtures.path("nano/hybrid-dflash2"))
FEW = 2  # clauses of each feature: the others count the same hazards, and all of them take minutes
NEEDY = sorted({clause for feature in FEATURES.values() for clause in feature.clauses[:FEW]}, key=list(CLAUSES).index)


def verdicts(clauses, without=frozenset()):
    about = Run("specqual.decoder:make", make, SETUP, without=without)
    return {result.clause: (result.verdict, result.detail) for result in run(about, clauses)}


@pytest.mark.parametrize("feature", FEATURES.values(), ids=lambda feature: feature.name)
def test_without_a_feature_the_clauses_that_need_it_are_inconclusive(feature) -> None:
    found = verdicts(feature.clauses[:FEW], frozenset({feature.name}))
    assert {clause: detail for clause, (verdict, detail) in found.items() if verdict != "INCONCLUSIVE"} == {}


def test_with_every_feature_the_same_clauses_are_decided() -> None:
    found = verdicts(NEEDY)
    assert {clause: detail for clause, (verdict, detail) in found.items() if verdict not in PASSED} == {}


def test_a_pattern_means_the_feature_of_that_name_or_all_that_begin_so() -> None:
    assert features(["lag"]) == {"lag"}
    assert features(["preempted"]) == {name for name in FEATURES if name.startswith("preempted-")}
    for wrong in ("", "no-such-thing"):
        with pytest.raises(ValueError, match="silent-rounds"):
            features([wrong])
