"""Kernels on plain tensors: those of the optimised decoder pass the clauses that qualify them, however it is run."""

from dataclasses import replace

import pytest

from specqual import fixtures
from specqual.conformance import check
from specqual.conformance.lab import Run
from specqual.conformance.resolve import resolve
from specqual.contract import Dissectable, Kernels, Setup
from specqual.decoder import make
from specqual.mutants.pairs import HYBRID2, Pair

KERNELS = [f"NUM-{number}" for number in (6, 7, 8, 9)]
PASSED = {"EXACT", "HOLDS"}
LESS = "the decoder does not claim to be bitwise"


def found(decoder: str, pair: Pair) -> dict[str, tuple[str, str]]:
    results = check.run(Run(decoder, resolve(decoder), pair.setup), KERNELS)
    return {result.clause: (str(result.verdict), result.detail) for result in results}


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_every_kernel_and_both_back_ends_are_exact_and_invariant_in_every_dtype(dtype: str) -> None:
    verdicts = found("specqual.decoder:make", replace(HYBRID2, dtype=dtype))
    assert {clause: said for clause, said in verdicts.items() if said[0] not in PASSED} == {}


@pytest.mark.parametrize("option", [("attention", "sdpa"), ("invariant", "0")], ids=lambda option: option[0])
def test_kernels_that_promise_no_bits_are_exact_all_the_same(option: tuple[str, str]) -> None:
    verdicts = found("specqual.decoder:make", replace(HYBRID2, options=(option,)))
    assert verdicts.pop("NUM-9") == ("SKIPPED", LESS)
    assert {clause: said for clause, said in verdicts.items() if said[0] not in PASSED} == {}


def test_a_table_has_no_kernels_and_the_reference_shows_none() -> None:
    decoder = make(Setup(target=fixtures.path("table/flat")))
    assert isinstance(decoder, Dissectable) and decoder.kernels() == Kernels()
    for name, pair, reason in (
        ("specqual.decoder:make", Pair("table/flat"), "the decoder has no kernels: it does not compute its target"),
        ("reference", HYBRID2, "the decoder does not offer Dissectable"),
    ):
        assert set(found(name, pair).values()) == {("SKIPPED", reason)}


def test_how_far_two_back_ends_are_apart_is_reported_beside_the_public_figure() -> None:
    (result,) = check.run(Run("specqual.decoder:make", make, HYBRID2.setup), ["NUM-8"])
    notes = result.evidence["notes"]
    assert notes["public figure"] == 0.0078125 and notes["inputs"] == "standard normal"
    apart = notes["largest difference"]
    assert len(apart) == 4 and all(0 < difference < 0.02 for difference in apart.values())
