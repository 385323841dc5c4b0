"""Soak runs: the same rows however a run is cut up, nothing recorded lost, and faults found that only hours show."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import pytest

from specqual import fixtures
from specqual.conformance.lab import Run
from specqual.conformance.verdicts import Status, Verdict
from specqual.contract import Event, Finished, Rule, Setup
from specqual.decoder import make
from specqual.decoder.engine import Engine
from specqual.mutants.planting import black_box
from specqual.soak.about import About
from specqual.soak.course import Course
from specqual.soak.epoch import play
from specqual.soak.hazards import UNSEEN
from specqual.soak.journal import NAME, BadJournal, Journal
from specqual.soak.night import judged
from specqual.soak.records import Epoch, Served
from specqual.soak.scenarios import SCENARIOS
from specqual.soak.serving import Traffic
from specqual.soak.stage import GROUNDS, Stage
from specqual.soak.stretches import barren, stretch
from specqual.soak.worker import World

from .soak_journals import in_process

NANO = Setup(target=fixtures.path("nano/hybrid"), draft=fixtures.path("nano/hybrid-dflash2"))
SHORT = ("bad", "gaps", "laws steep")
FAULTS = (
    ("hours:leak_often", "storm", {"conservation"}),
    ("hours:dirty", "storm", {"regret", "isolation", "seed", "state"}),
    ("hours:wrap_soon", "mixed", {"regret", "isolation", "seed"}),
    ("hours:drift", "mixed", {"state"}),
    ("pool:m18a", "conversations", {"state"}),
)


def about(*scenarios: str, decoder: str = "optimised", seed: int = 0, scale: float = 0.25) -> About:
    return About(decoder, NANO, seed, scenarios, scale)


def rows(path: Path) -> dict[tuple[str, int], tuple[str, ...]]:
    """Everything about each epoch that must not depend on when and where it ran."""
    journal = Journal.read(path)
    found = {(scenario, epoch): [*told] for scenario, epoch, *told in journal.rows()}
    for scenario, epoch, one in journal.increments():
        found[scenario, epoch].append(repr((one.test, one.log_e, one.samples, sorted(one.counts.items()))))
    for scenario, epoch, name, bins in journal.connection.execute("SELECT * FROM histograms ORDER BY name"):
        found[scenario, epoch].append(f"{name} {bins}")
    journal.close()
    return {key: tuple(told) for key, told in found.items()}


def test_a_run_that_was_cut_up_says_what_an_uninterrupted_one_says(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    in_process(about(*SHORT), Journal.open(whole), 8)
    for epochs in (1, 3, 4):
        in_process(about(*SHORT), Journal.open(cut), epochs)
    assert rows(cut) == rows(whole)
    assert len(rows(cut)) == 8
    one, other = judged(Journal.read(cut)), judged(Journal.read(whole))
    assert one.decisions == other.decisions
    assert one.log_e == other.log_e


def test_a_journal_goes_on_with_its_own_run_only(tmp_path):
    in_process(about("gaps"), Journal.open(tmp_path / "one"), 1)
    with pytest.raises(BadJournal, match="seed"):
        in_process(about("gaps", seed=1), Journal.open(tmp_path / "one"), 1)


def test_an_epoch_is_in_the_journal_as_a_whole_or_not_at_all(tmp_path):
    journal = Journal.open(tmp_path / "one")
    segment = journal.begin({"seed": 0})
    served = Served(0, 0.0, 1.0, 0.5)
    journal.add(segment, Epoch("gaps", 0, Verdict.EXACT, "", {}, (), {"regret": {"0": 1}}), served)
    with pytest.raises(TypeError):
        journal.add(segment, Epoch("gaps", 1, Verdict.EXACT, "", {}, (), {"regret": {"0": object()}}), served)
    assert journal.done() == {("gaps", 0)}
    assert journal.histogram("regret") == {"0": 1}


def command(folder: Path, *more: str) -> list[str]:
    target, draft = ("--target", str(NANO.target)), ("--draft", str(NANO.draft))
    scenarios = [word for name in ("gaps", "laws steep") for word in ("--scenario", name)]
    code = "import sys; from specqual.cli import main; sys.exit(main())"
    call = [sys.executable, "-c", code, "soak", "--minutes", "5", "--scale", "0.25", "--report", str(folder)]
    return [*call, *target, *draft, *scenarios, *more]


def finished(folder: Path, epochs: int, process: subprocess.Popen[bytes]) -> dict[tuple[str, int], tuple[str, ...]]:
    """The rows of a run, once it has so many."""
    file = folder / NAME
    for _ in range(600):
        assert process.poll() is None
        with suppress(BadJournal):  # it is just being made
            if len(found := rows(file)) >= epochs:
                return found
        time.sleep(0.2)
    raise AssertionError("too few epochs in two minutes")


def test_what_is_recorded_survives_kill_9_and_the_run_goes_on(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command(tmp_path), env=environment, stdout=subprocess.DEVNULL)
    before = finished(tmp_path, 2, first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert rows(tmp_path / NAME).items() >= before.items()
    second = subprocess.Popen(command(tmp_path, "--resume"), env=environment, stdout=subprocess.PIPE)
    after = finished(tmp_path, len(rows(tmp_path / NAME)) + 1, second)
    second.send_signal(signal.SIGINT)
    told = second.communicate()[0].decode()
    assert after.items() >= before.items()
    assert "SIGINT" in told
    assert second.returncode == Status.OPEN  # most of its scenarios' hazards are still to come
    assert (tmp_path / "index.html").is_file()
    ends = [how for (how,) in Journal.read(tmp_path / NAME).connection.execute("SELECT how FROM segments")]
    assert ends == [None, "SIGINT"]


@pytest.mark.parametrize(("decoder", "scenario", "oracles"), FAULTS)
def test_a_planted_fault_is_found_within_a_few_epochs(decoder, scenario, oracles):
    world = World(about(scenario, decoder=f"specqual.mutants.{decoder}"))
    played = (world.play((scenario, number)).epoch for number in range(6))
    first = next(epoch for epoch in played if epoch.verdict is not Verdict.EXACT)
    world.close()
    assert first.verdict is Verdict.VIOLATED
    assert oracles & {one.oracle for one in first.violations}
    assert all(one.bundle["scenario"] == scenario for one in first.violations)


def test_a_decoder_that_raises_is_an_error_and_the_next_epoch_has_a_new_one(monkeypatch):
    world, sound, steps = World(about("gaps")), Engine.step, count()

    def step(self: Engine) -> list[Event]:
        if next(steps) == 5:
            raise RuntimeError("the sixth step")
        return sound(self)

    monkeypatch.setattr(Engine, "step", step)
    one, other = (world.play(("gaps", number)).epoch for number in range(2))
    world.close()
    assert (one.verdict, other.verdict) == (Verdict.ERROR, Verdict.EXACT)
    assert "the sixth step" in one.violations[0].detail


def test_a_black_box_is_judged_by_its_tokens_and_not_asked_for_hazards_that_it_does_not_show(tmp_path):
    journal, stage = (
        Journal.open(tmp_path / "one"),
        Stage(GROUNDS["nano"], Run("a black box", black_box(make), NANO), 0.1),
    )
    segment = journal.begin(about("storm").json())
    for number in range(3):
        journal.add(segment, play(stage, SCENARIOS["storm"], 0, number).epoch, Served(0, 0.0, 1.0, 0.5))
    stage.close()
    hazards = judged(journal).decisions["hazards"]
    assert hazards.verdict is Verdict.EXACT
    assert "cancelled while waiting" in hazards.detail
    assert journal.counts()["tokens judged"] > 0


def unended(setup: Setup) -> Engine:
    """Says that requests ended, and neither why nor what they cost."""
    decoder = make(setup)
    step = decoder.step

    def vague() -> list[Event]:
        return [replace(one, reasons=(), usage=None) if isinstance(one, Finished) else one for one in step()]

    decoder.step = vague
    return decoder


def test_an_end_without_a_reason_and_a_charge_is_seen_in_a_black_box_too():
    stage = Stage(GROUNDS["nano"], Run("a black box", black_box(unended), NANO), 0.1)
    epoch = play(stage, SCENARIOS["gaps"], 0, 0).epoch
    stage.close()
    assert epoch.verdict is Verdict.VIOLATED
    assert {"usage", "reasons"} <= {one.detail.split(": ")[1].split()[0] for one in epoch.violations}


def test_where_nothing_is_drafted_nothing_is_rejected():
    setup = replace(NANO, draft=None, rule=Rule.NONE)
    world = World(About("optimised", setup, 0, ("rejected nano",), 0.25))
    counts = world.play(("rejected nano", 0)).epoch.counts
    world.close()
    hazard = "steps without an accepted draft"
    assert hazard not in counts and counts[f"{UNSEEN}{hazard}"] == 1 and counts["steps without a draft"] > 0


def test_what_the_judge_remembers_of_an_epoch_is_gone_behind_it():
    """Passes over long sequences take a hundred megabytes, and would come and go in what the process is judged by."""
    world = World(about("mixed"))
    assert world.play(("mixed", 0)).epoch.counts["tokens judged"] > 0
    assert not world.stage("nano").judge._passes
    world.close()


def test_graphs_that_thrash_are_found_once_they_should_have_settled():
    world = World(about("gaps", decoder="specqual.mutants.graphs:m25g"))
    found = [world.play(("gaps", number)).epoch for number in range(5)]
    world.close()
    assert [epoch.verdict for epoch in found[:3]] == [Verdict.EXACT] * 3
    assert "graphs" in [one.oracle for epoch in found[3:] for one in epoch.violations]


def test_a_law_that_leans_by_half_a_percent_is_found(tmp_path):
    journal = Journal.open(tmp_path / "one")
    in_process(about("laws steep", decoder="specqual.mutants.hours:lean", scale=1.0), journal, 1)
    found = judged(journal)
    assert found.decisions["laws"].verdict is Verdict.VIOLATED
    assert found.status is Status.VIOLATED


def test_a_sound_decoder_is_not_accused_and_every_hazard_of_these_scenarios_occurs(tmp_path):
    journal = Journal.open(tmp_path / "one")
    names = ("storm", "pressure", "conversations", "laws steep", "limits")
    segment, world = journal.begin(about(*names).json()), World(about(*names, seed=3))
    for name in names:
        journal.add(segment, world.play((name, 0)).epoch, Served(0, 0.0, 1.0, 0.5))
    world.close()
    found = judged(journal)
    decided = {name: found.decisions[name].verdict for name in ("traffic", "laws", "hazards")}
    assert decided == {"traffic": Verdict.EXACT, "laws": Verdict.HOLDS, "hazards": Verdict.EXACT}
    assert found.status is Status.OPEN  # too short for anything to be said of leaks


def test_a_run_in_which_a_hazard_never_occurred_is_open(tmp_path):
    journal = Journal.open(tmp_path / "one")
    in_process(about("gaps", "bad"), journal, 0)
    assert judged(journal).status is Status.OPEN


def test_a_preemption_that_takes_nothing_is_none():
    world = World(about("counted"))
    decoder, told = world.stage("nano").decoder, []
    preempt = decoder.preempt

    def seen(request_id: int) -> None:
        try:
            decoder.inspect(request_id)
            told.append(True)
        except KeyError:
            told.append(False)
        preempt(request_id)

    decoder.preempt = seen
    stage = world.stage("nano")
    plan = SCENARIOS["counted"].draw(Random(1), stage.room)
    found = Traffic(decoder, plan, lambda what, about: None).run()
    world.close()
    assert sum(course.preempted for course in found.courses) == told.count(True) > 0
    assert told.count(False) > 0


def test_each_scenario_names_hazards():
    assert all(scenario.hazards for scenario in SCENARIOS.values())


@pytest.mark.parametrize(("name", "draw"), [("rejected", barren(1_100)), ("rejected far", stretch(400))])
def test_a_long_request_is_forgotten_before_its_epoch_ends(name, draw):
    """Else the rounds of many of them, which a decoder keeps for a while, would look like a leak."""
    stage, seen = World(about(name)).stage(SCENARIOS[name].stage), []

    def told(what: str, course: Course) -> None:
        if what == "ended":
            seen.append((len(course.rounds), course.request_id))

    epoch = play(stage, replace(SCENARIOS[name], draw=draw), 0, 0, told).epoch
    (steps, request_id), *others = seen
    assert steps >= 400 and epoch.counts["requests"] == len(seen) and all(rounds < 5 for rounds, _ in others)
    with pytest.raises(KeyError):
        stage.decoder.rounds(request_id)
    stage.close()
