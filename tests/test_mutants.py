"""The suite has teeth: every mutant is VIOLATED by the clauses that own it, and sound decoders and controls are not.

A crash, an error or a time-out does not count as caught.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest

from specqual.conformance import check
from specqual.conformance.chapter import Result
from specqual.conformance.lab import Run
from specqual.conformance.resolve import resolve
from specqual.conformance.verdicts import Profile
from specqual.contract import Make
from specqual.mutants import drawing, kinds, parameters, verification
from specqual.mutants.controls import n4
from specqual.mutants.mended import MENDED
from specqual.mutants.mutant import Control, Mutant, Owner
from specqual.mutants.pairs import DFLASH2, FLAT, Pair
from specqual.mutants.planting import black_box
from specqual.mutants.registry import BadRegistry, controls, mutants, refuse

PASSED = {"EXACT", "HOLDS", "TIE-EXPLAINED"}
LONGEST = 20  # steps of a history that was shrunk
OWNED = [(mutant, owner) for mutant in mutants().values() for owner in mutant.owners]


def named(value: object) -> str | None:
    if isinstance(value, Owner):
        return f"{value.clause}-{value.pair}".replace("/", "-")
    return str(value) if isinstance(value, Mutant | Control | Pair) else None


def decided(name: str, make: Make, pair: Pair, clauses: Sequence[str]) -> Iterator[Result]:
    return check.run(Run(name, make, pair.setup), clauses)


def complaints(results: Iterator[Result], allowed: Sequence[str] | frozenset[str] = ()) -> dict[str, str]:
    """What does not pass; of the allowed ones, what does not even stay open."""
    bad = {"VIOLATED", "ERROR"}
    return {
        r.clause: f"{r.verdict}: {r.detail}"
        for r in results
        if r.verdict not in PASSED and (r.clause not in allowed or r.verdict in bad)
    }


@pytest.mark.parametrize(("mutant", "owner"), OWNED, ids=named)
def test_the_owning_clause_is_violated_by_a_short_counterexample(mutant: Mutant, owner: Owner) -> None:
    (result,) = decided(mutant.decoder, mutant.make, owner.pair, [owner.clause])
    assert result.verdict == "VIOLATED", result.detail
    assert result.proof
    history = result.evidence["cases"][0].get("history", "") if result.evidence["kind"] == "histories" else ""
    assert len(history.split(" · ")) <= LONGEST, history


@pytest.mark.parametrize(
    ("base", "pair"), sorted({(mutant.base, owner.pair) for mutant, owner in OWNED}, key=str), ids=named
)
def test_the_sound_decoder_passes_the_same_clauses(base: str, pair: Pair) -> None:
    clauses = sorted({owner.clause for mutant, owner in OWNED if (mutant.base, owner.pair) == (base, pair)})
    assert complaints(decided(base, resolve(base), pair, clauses)) == {}


@pytest.mark.parametrize("control", controls(), ids=str)
def test_a_decoder_that_is_right_in_an_unusual_way_is_not_flagged(control: Control) -> None:
    assert complaints(decided(control.decoder, control.make, control.pair, control.clauses), control.open) == {}


def test_a_near_tie_is_explained_as_one() -> None:
    (found,) = decided("n4", n4, FLAT, ["GE-1"])
    assert found.verdict == "TIE-EXPLAINED", found.detail


def test_statistics_see_a_law_that_is_too_flat_from_outside() -> None:
    (found,) = decided("m04e_black_box", verification.m04e_black_box, DFLASH2, ["LAW-6"])
    assert found.verdict == "VIOLATED", found.detail


def test_noise_of_a_draft_that_is_used_again_shows_on_a_black_box_within_a_few_thousand_samples() -> None:
    """M03a, the weakest bias that is known, at the error rate of any run; the patience of certify is not needed."""
    about = Run("m03a", black_box(drawing.m03a), DFLASH2.setup, Profile.CERTIFY, seed=9)
    (found,) = check.run(about, ["LAW-6"])
    assert found.verdict == "VIOLATED", found.detail
    assert sum(sum(case["counts"]) for case in found.evidence["cases"]) <= 10_000


def test_mutants_claim_what_their_sound_decoders_claim() -> None:
    sound = {}
    for mutant in mutants().values():
        key = mutant.base, mutant.pair
        if key not in sound:
            sound[key] = resolve(mutant.base)(mutant.pair.setup).claims
        assert mutant.make(mutant.pair.setup).claims == sound[key], mutant.id


def test_every_kind_that_applies_has_a_mutant_and_every_mutant_says_what_goes_wrong() -> None:
    assert {mutant.kind for mutant in mutants().values()} <= set(kinds.KINDS)
    assert not set(kinds.KINDS) & set(kinds.DO_NOT_APPLY)
    assert [mutant.id for mutant in mutants().values() if not mutant.mechanism] == []


def test_what_the_suite_had_to_learn_it_knows() -> None:
    for name, lesson in MENDED.items():
        mutant, clause = mutants()[name], lesson.partition(":")[0]
        (result,) = decided(mutant.decoder, mutant.make, mutant.pair, [clause])
        assert result.verdict == "VIOLATED", f"{name}: {result.detail}"


def test_the_registry_refuses_what_no_row_names_and_what_cannot_be() -> None:
    sound = tuple(chain.from_iterable(getattr(m, "PLANTED", ()) for m in (verification,)))
    assert refuse(sound) is None
    twice = replace(sound[0])
    with pytest.raises(BadRegistry, match="M01a"):
        refuse((*sound, twice))
    with pytest.raises(BadRegistry, match="M01a: GE-99"):
        refuse((replace(sound[0], owners=(Owner("GE-99", DFLASH2),)),))
    with pytest.raises(BadRegistry, match="m01b"):
        refuse(sound[:1], SimpleNamespace(__name__=verification.__name__, m01b=verification.m01b))


def test_what_is_not_claimed_must_be_refused_by_its_name() -> None:
    names = ("narrow", "narrow_silent", "narrow_misnamed")
    found = {name: next(decided(name, getattr(parameters, name), DFLASH2, ["SMP-8"])) for name in names}
    assert [found[name].verdict for name in names] == ["EXACT", "VIOLATED", "VIOLATED"]
    assert found["narrow_silent"].detail.startswith("min_p")
