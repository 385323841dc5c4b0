"""A bundle says all that serves an epoch again, and a replay says plainly whether it went wrong once more."""

import json
from itertools import islice

import pytest
import torch

from specqual import fixtures
from specqual.cli import main
from specqual.conformance.verdicts import Status, Verdict
from specqual.contract import Setup
from specqual.decoder import make
from specqual.soak.about import About, ranges
from specqual.soak.scenarios import SCENARIOS
from specqual.soak.worker import World

NANO = Setup(target=fixtures.path("nano/dense"))
LATE = 3  # epochs behind which the late decoder is wrong


def late(setup):
    """Cuts each request short once it has served the requests of some epochs."""
    decoder = make(setup)
    submit, scripts, script = decoder.submit, [], decoder.script

    def scripted(one):
        scripts.append(one)
        script(one)

    def submitted(request):
        request_id = submit(request)
        if len(scripts) > 2 * LATE:  # each epoch sets one and takes it away
            decoder.cancel(request_id)
        return request_id

    decoder.submit, decoder.script = submitted, scripted
    return decoder


def single(setup):
    """Fails where it is served by more threads than one."""
    if torch.get_num_threads() != 1:
        raise RuntimeError("too many threads")
    return make(setup)


def failing(setup):
    raise RuntimeError("an illegal memory access")


def about(name: str, *scenarios: str) -> About:
    decoder = name if name == "optimised" else f"tests.test_soak_replay:{name}"
    return About(decoder, NANO, 3, scenarios or ("gaps", "bad"), 0.1)


def violated(world: World) -> tuple[int, dict]:
    """The number of the first epoch of gaps that is wrong, and its bundle."""
    for number in range(9):
        found = world.play(("gaps", number)).epoch.violations
        if found:
            return number, {"oracle": found[0].oracle, **found[0].bundle}
    raise AssertionError("nothing was wrong")


def replayed(tmp_path, bundle: dict) -> int:
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(bundle))
    return main(["soak", "--replay", str(file)])


def test_places_are_told_as_ranges_in_the_order_in_which_they_came():
    assert ranges([0, 1, 2, 5, 3, 4, 9]) == [[0, 2], [5, 5], [3, 4], [9, 9]] and ranges([]) == []


@pytest.mark.parametrize("skipped", [1, 2])
def test_a_bundle_names_every_epoch_behind_its_own_be_they_thousands(skipped):
    """`skipped`: of so many workers, one."""
    whole = about("optimised", *SCENARIOS)
    behind = list(islice(whole.on("nano"), 0, 4_000, skipped))
    bundle = json.loads(json.dumps(whole.again(("mixed", 900), behind)))
    assert whole.behind(bundle) == behind and About.of(bundle) == whole
    assert bundle["behind"] == ([[0, 3_999]] if skipped == 1 else [[place, place] for place in range(0, 4_000, 2)])
    assert {SCENARIOS[name].stage for name, _ in behind} == {"nano"}


def test_a_replay_that_needs_what_was_served_before_has_it_and_says_so(tmp_path, capsys):
    world = World(about("late"))
    world.play(("bad", 0))
    number, bundle = violated(world)
    world.close()
    assert number == LATE - 1 and bundle["behind"]
    assert replayed(tmp_path, bundle) == Status.VIOLATED
    told = capsys.readouterr().out
    assert "gaps, epoch 2, alone: EXACT" in told and "gaps, epoch 2, behind 3 others: VIOLATED" in told
    assert "reproduced; exit status 1" in told and "not reproduced" not in told


def test_a_replay_that_finds_nothing_leaves_it_open_and_says_so(tmp_path, capsys):
    world = World(about("late"))
    bundle = violated(world)[1]
    world.close()
    assert replayed(tmp_path, {**bundle, "decoder": "optimised"}) == Status.OPEN
    told = capsys.readouterr().out
    assert f"not reproduced, alone nor behind {LATE} others; exit status 2" in told
    assert replayed(tmp_path, {**bundle, "decoder": "optimised", "behind": []}) == Status.OPEN
    told = capsys.readouterr().out
    assert "not reproduced, alone; exit status 2" in told and "behind" not in told


def test_a_replay_that_finds_something_else_does_not_call_it_the_same(tmp_path, capsys):
    world = World(about("late"))
    bundle = violated(world)[1]
    world.close()
    assert replayed(tmp_path, {**bundle, "oracle": "graphs"}) == Status.VIOLATED
    assert "something else went wrong than graphs had found; exit status 1" in capsys.readouterr().out
    assert replayed(tmp_path, {**bundle, "decoder": about("failing").decoder}) == Status.ERROR
    assert "an illegal memory access" in capsys.readouterr().out


def test_a_replay_has_one_thread_as_its_worker_had(tmp_path, capsys):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert replayed(tmp_path, about("single").again(("gaps", 0))) == Status.OPEN
        assert "gaps, epoch 0, alone: EXACT" in capsys.readouterr().out
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("changes", [{"scenario": "none"}, {"behind": [["gaps", 1]]}, {"behind": None}, {"rule": "?"}])
def test_what_is_no_bundle_is_refused(tmp_path, capsys, changes):
    assert replayed(tmp_path, {**about("optimised").again(("gaps", 0)), **changes}) == Status.OPEN
    assert "is no bundle" in capsys.readouterr().err


def test_a_decoder_that_is_made_anew_has_nothing_behind_it(monkeypatch):
    world = World(about("optimised"))
    stage = world.stage("nano")
    assert world.play(("gaps", 0)).epoch.verdict is Verdict.EXACT and stage.behind == [("gaps", 0)]
    monkeypatch.setattr(stage.decoder, "step", lambda: 1 / 0)
    assert world.play(("gaps", 1)).epoch.verdict is Verdict.ERROR and stage.behind == []
    world.close()
