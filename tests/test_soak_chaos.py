"""Faults that are put in on purpose are survived or end clearly; one that is swallowed, or leaves a mess, is seen."""

from dataclasses import replace
from itertools import islice, pairwise

import pytest
from safetensors.torch import load_file

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Finished, Setup
from specqual.decoder import make
from specqual.decoder.engine import Engine
from specqual.reference import make as make_reference
from specqual.soak.afflictions import Injected, NoDrill, allocating, drafting, drawing, instead, nan_laws, stepping
from specqual.soak.chaos import DRILLS, PREFIX, Scene, drilled, nan_weights, until_clean
from specqual.soak.disk import full_disk
from specqual.soak.journal import Journal
from specqual.soak.records import Served
from specqual.soak.trial import Batch, Fate

NANO = Setup(
    target=fixtures.path("nano/dense"),
    draft=fixtures.path("nano/dense-dflash2"),
    options={"samples": 4, "remembered": 16},
)


def scene(make=make, size=1, setup=NANO) -> Scene:
    return Scene(make, setup, 5, size)


def fates(drill, make=make, size=1) -> set[Fate]:
    return {one.fate for one in drill(scene(make, size))}


@pytest.mark.parametrize(("affliction", "size"), [(drafting, 1), (drawing, 2), (stepping, 1), (allocating, 1)])
def test_every_place_where_a_step_can_fail_is_struck_and_none_is_the_end(affliction, size):
    found = list(until_clean(affliction)(scene(size=size)))
    assert len(found) >= 3 and {one.fate for one in found} <= {Fate.WENT_ON, Fate.RECOVERED}
    assert [one.chances for one in found] == list(range(1, len(found) + 1))
    assert all(str(one.chances) in one.detail for one in found)  # what was raised says where it struck


def test_a_slot_that_a_pass_was_to_fill_for_the_prefix_cache_comes_back_if_the_pass_fails():
    hybrid = replace(NANO, target=fixtures.path("nano/hybrid"), draft=fixtures.path("nano/hybrid-dflash2"), options={})
    found = {one.fate for one in until_clean(allocating)(scene(setup=hybrid, size=4))}
    assert found <= {Fate.WENT_ON, Fate.RECOVERED}


def test_what_is_not_a_number_costs_drafts_and_nothing_else():
    assert fates(until_clean(nan_laws, greedy=True)) == {Fate.SURVIVED}


def test_a_drafter_that_is_not_a_number_costs_drafts_and_nothing_else():
    found = list(islice(nan_weights(scene()), 8))
    assert {one.fate for one in found} == {Fate.SURVIVED}
    assert len({one.detail.partition(":")[0] for one in found}) == 8  # each a tensor of its own


class Strict(Engine):
    """Will not serve."""

    def step(self):
        raise RuntimeError("the drafter is not a number")


def strict(setup):
    """The optimised decoder, which will not serve with a drafter that is not a number."""
    weights = load_file(setup.draft / "model.safetensors").values()
    return planted(Strict)(setup) if any(tensor.isnan().any() for tensor in weights) else make(setup)


def test_a_decoder_that_raises_at_such_a_drafter_has_ended_clearly_and_is_not_wrong():
    found = list(islice(nan_weights(scene(strict)), 2))
    assert {one.fate for one in found} == {Fate.ENDED} and "the drafter is not a number" in found[0].detail


def test_a_full_disk_loses_nothing_at_any_page():
    found = list(full_disk())
    assert len(found) > 5 and {one.fate for one in found} == {Fate.KEPT}


def planted(kind) -> Engine:
    """The optimised decoder as one of these kinds of engine."""

    def made(setup):
        decoder = make(setup)
        decoder.__class__ = kind
        return decoder

    return made


class Careless(Engine):
    """Swallows what it trips over, and with it a request."""

    def step(self):
        try:
            return super().step()
        except (Injected, MemoryError):
            self.cancel(next(iter(self._live)))
            return []


class Leaking(Engine):
    """Loses the pages of a request that trips, and can serve on."""

    def step(self):
        try:
            return super().step()
        except MemoryError:
            for row in self._all():
                row.memory = None
            raise


class Broken(Engine):
    """Never works again."""

    broken = False

    def step(self):
        if self.broken:
            raise RuntimeError("is broken")
        try:
            return super().step()
        except Injected:
            self.broken = True
            raise


def test_a_request_that_is_lost_without_a_word_is_wrong():
    found = list(until_clean(drafting)(scene(planted(Careless))))
    assert {one.fate for one in found} == {Fate.WRONG} and "other tokens in request 0" in found[0].detail


def test_a_decoder_that_loses_what_it_had_taken_is_ended_and_says_what_it_lost():
    found = [one for one in until_clean(allocating)(scene(planted(Leaking))) if one.fate is Fate.ENDED]
    assert found and all(" free" in one.detail for one in found)


def test_a_decoder_that_never_works_again_is_made_anew():
    assert fates(until_clean(drafting), planted(Broken)) == {Fate.ENDED}


def test_a_drill_is_an_epoch_with_its_fates_counted():
    name = "the drafter raises"
    good, bad = drilled(name, scene()), drilled(name, scene(planted(Careless)))
    assert (good.scenario, good.verdict, good.violations) == (PREFIX + name, Verdict.EXACT, ())
    assert good.counts["faults put in"] == sum(good.histograms["fates"].values()) >= 5
    assert bad.verdict is Verdict.VIOLATED and len(bad.violations) == bad.counts["faults put in"]
    assert bad.violations[0].bundle == {"drill": name, "strike": 1, "seed": 5}


def test_a_drill_that_cannot_be_made_is_skipped_with_its_reason(tmp_path):
    epoch = drilled("an allocation fails", Scene(make_reference, Setup(target=NANO.target), 5, 1))
    assert epoch.verdict is Verdict.SKIPPED and "only the pools of the optimised decoder" in str(epoch.histograms)
    with pytest.raises(NoDrill, match="no drafter with weights"):
        next(nan_weights(scene(setup=Setup(target=NANO.target))))
    journal = Journal.open(tmp_path / "soak.sqlite")
    journal.add(journal.begin({"seed": 5}), epoch, Served(0, 0.0, 1.0, 0.0))
    assert journal.done() == {(PREFIX + "an allocation fails", 0)}


def test_a_slow_consumer_hears_the_same():
    assert fates(DRILLS["the consumer is slow"]) == {Fate.SURVIVED}


def test_the_requests_of_a_drill_share_beginnings_and_are_the_same_for_the_same_seed():
    first, again = scene(size=4).requests(), scene(size=4).requests()
    assert first == again and len({request.prompt[:3] for request in first}) == 1
    assert {request.n for request in first} == {1, 2} and {request.sampling.greedy for request in first} == {
        True,
        False,
    }
    assert all(request.sampling.greedy for request in scene(size=4).requests(greedy=True))
    assert [a.prompt != b.prompt for a, b in pairwise(first)] == [True] * 3


def test_an_object_is_as_it_was_behind_a_fault():
    decoder = make(NANO)
    with instead(decoder, "step", list):
        assert "step" in vars(decoder)
    assert "step" not in vars(decoder)
    batch = Batch(decoder, scene().requests())
    assert batch.run() and not any(isinstance(event, Finished) for event in decoder.step())
