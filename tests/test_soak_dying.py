"""A worker that dies or hangs leaves a trace, whatever its epoch says when it is served again."""

import os
import signal
import sqlite3
import tempfile
import time
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import pytest

import specqual.soak.run
from specqual import fixtures
from specqual.conformance.drive import DecoderError, deadline
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.decoder import make
from specqual.soak.about import About
from specqual.soak.journal import NAME, BadJournal, Journal
from specqual.soak.mayhem import KILLS, Mayhem
from specqual.soak.night import judged
from specqual.soak.records import CUT, PROCESS, SUITE, Epoch, Served, Violation
from specqual.soak.run import Soak, Worker

ABOUT = About("optimised", Setup(target=fixtures.path("nano/dense")), 3, ("gaps",), 0.1)


def hanging(setup):
    """A decoder whose steps never return, and let no signal of a clock in."""
    decoder = make(setup)

    def step():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(600)

    decoder.step = step
    return decoder


def until(journal: Journal, kill) -> Soak:
    """A run that ends once it has recorded something, `kill` being called at each beat."""

    def beat(soak: Soak) -> None:
        if soak.journal.done():
            soak.stop("enough")
        else:
            kill(soak)

    return Soak(ABOUT, journal, 1, 120.0, beat)


def test_the_first_death_of_a_worker_is_recorded_and_makes_the_run_an_error(tmp_path):
    killed = []

    def kill(soak: Soak) -> None:
        (worker,) = soak.team
        if worker.task is not None and not killed:
            killed.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGSEGV)

    journal = Journal.open(tmp_path / NAME)
    assert until(journal, kill).run() == "enough"
    ((scenario, epoch, detail),) = journal.noted(PROCESS)
    assert (scenario, epoch) == ("gaps", 0) and f"process {killed[0]} ended with status -11" in detail
    assert [verdict for _, _, verdict, _, _ in journal.rows()] == ["EXACT"]  # it was served again
    decision = judged(journal).decisions["traffic"]
    assert decision.verdict is Verdict.ERROR and "status -11" in decision.detail


def test_a_death_is_told_with_what_its_process_had_served_on_that_stage(tmp_path):
    killed = []

    def beat(soak: Soak) -> None:
        (worker,) = soak.team
        if worker.task is not None and len(soak.journal.done()) == 2 and not killed:
            killed.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGSEGV)
        elif len(soak.journal.done()) > 2:
            soak.stop("enough")

    journal, about = Journal.open(tmp_path / NAME), replace(ABOUT, scale=2.0)
    Soak(about, journal, 1, 120.0, beat).run()
    (one,) = [found.violation for found in journal.violations()]
    assert one.oracle == PROCESS and one.bundle["behind"] == [[0, 1]]
    assert about.behind(one.bundle) == [("gaps", 0), ("gaps", 1)]


def test_an_epoch_that_broke_leaves_nothing_behind_the_next_on_its_stage():
    worker = Worker(0, None, None)
    for name, verdict in (("gaps", "EXACT"), ("laws", "EXACT"), ("bad", "EXACT"), ("far", Verdict.SKIPPED)):
        worker.served(Epoch(name, 0, verdict, ""))
    assert worker.behind == [("gaps", 0), ("laws", 0), ("bad", 0)]
    worker.served(Epoch("storm", 0, "ERROR", "", violations=(Violation(SUITE, "KeyError", {}),)))
    assert worker.behind == [("laws", 0)]
    assert replace(ABOUT, scenarios=("laws", "gaps")).again(("gaps", 1), worker.behind)["behind"] == []


def test_a_worker_that_is_stopped_with_the_run_has_not_died(tmp_path):
    """A supervisor signals all processes of a group at once."""

    def stop(soak: Soak) -> None:
        (worker,) = soak.team
        if worker.task is not None:
            soak.stop("SIGTERM")
            worker.process.terminate()
            worker.process.join()
            soak._heard(worker)

    journal = Journal.open(tmp_path / NAME)
    assert until(journal, stop).run() == "SIGTERM"
    assert not journal.noted(PROCESS)


def test_a_clock_that_is_set_on_makes_no_worker_hang(tmp_path, monkeypatch):
    ahead = iter((0.0, 0.0))
    monkeypatch.setattr(specqual.soak.run, "time", lambda: time.time() + next(ahead, 7_200.0))
    journal = Journal.open(tmp_path / NAME)
    assert until(journal, lambda soak: None).run() == "enough"
    assert not journal.noted(PROCESS)


def test_what_chaos_kills_is_no_death(tmp_path):
    now = [0.0]
    mayhem = Mayhem(3, lambda: now[0])
    now[0] = KILLS[1]
    journal = Journal.open(tmp_path / NAME)
    until(journal, lambda soak: mayhem.tick(soak)).run()
    assert not journal.noted(PROCESS) and judged(journal).decisions["traffic"].verdict is Verdict.EXACT


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_that_a_worker_kept_for_a_while_stays_behind(tmp_path, monkeypatch, killed):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = []

    def beat(soak: Soak) -> None:
        kept.extend(Path(soak.folder).glob("specqual-soak-*/window/config.json"))
        if kept and not soak.stopped:
            soak.stop("enough")
            if killed:
                soak.team[0].process.kill()

    journal = Journal.open(tmp_path / NAME)
    Soak(replace(ABOUT, scenarios=("far",)), journal, 1, 120.0, beat).run()
    assert kept and not [*tmp_path.glob("specqual-soak-*")]


def test_a_worker_that_hangs_is_killed_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(specqual.soak.run, "HUNG", 8.0)
    monkeypatch.setattr(specqual.soak.run, "TRIES", 1)
    journal = Journal.open(tmp_path / NAME)
    soak = until(journal, lambda soak: None)
    soak.about = replace(ABOUT, decoder="tests.test_soak_dying:hanging")
    soak.run()
    assert "heard nothing for 8 seconds, and killed" in journal.noted(PROCESS)[0][2]
    assert judged(journal).decisions["traffic"].verdict is Verdict.ERROR


def test_a_worker_that_says_something_does_not_hang(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(specqual.soak.run, "monotonic", lambda: now[0])
    mine, theirs = Pipe()
    worker = Worker(0, None, mine)
    worker.give(("gaps", 0))
    now[0] = 0.9 * specqual.soak.run.HUNG
    theirs.send(("gauges", {}))
    soak = until(Journal.open(tmp_path / NAME), lambda soak: None)
    soak._heard(worker)
    now[0] *= 1.5
    assert not worker.hung and worker.seconds == now[0]
    now[0] *= 2
    assert worker.hung


def test_an_epoch_that_has_no_end_when_the_time_is_up_leaves_the_run_open_until_it_is_served(tmp_path, monkeypatch):
    monkeypatch.setattr(specqual.soak.run, "GRACE", 2.0)
    journal = Journal.open(tmp_path / NAME)
    Soak(replace(ABOUT, decoder="tests.test_soak_dying:hanging"), journal, 1, 3.0).run()
    assert [(scenario, epoch) for scenario, epoch, _ in journal.noted(CUT)] == [("gaps", 0)]
    decision = judged(journal).decisions["traffic"]
    assert decision.verdict is Verdict.INCONCLUSIVE and "gaps, epoch 0" in decision.detail
    journal.add(1, Epoch("gaps", 0, Verdict.EXACT, ""), Served(0, 0.0, 1.0, 0.5))
    assert judged(journal).decisions["traffic"].verdict is Verdict.EXACT


def test_a_deadline_within_another_leaves_that_one_armed():
    with pytest.raises(DecoderError, match=r"within 0\.3 seconds"), deadline(0.3):
        with deadline(5.0):
            pass
        time.sleep(2.0)


def test_a_journal_has_one_writer(tmp_path):
    journal = Journal.open(tmp_path / NAME)
    with pytest.raises(BadJournal, match="another process writes it"):
        Journal.open(tmp_path / NAME)
    journal.close()
    Journal.open(tmp_path / NAME).close()


def test_a_journal_that_was_killed_before_it_had_tables_is_begun_anew(tmp_path):
    connection = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert (tmp_path / NAME).stat().st_size > 0
    assert Journal.open(tmp_path / NAME).begin({"seed": 0}) == 1


def test_an_epoch_that_is_there_already_is_no_full_disk(tmp_path):
    soak = Soak(ABOUT, Journal.open(tmp_path / NAME), 1, 1.0)
    soak.segment = soak.journal.begin({"seed": 0})
    served = Served(0, 0.0, 1.0, 0.0)
    soak._record(Epoch("gaps", 0, "EXACT", ""), served)
    with pytest.raises(sqlite3.IntegrityError):
        soak._record(Epoch("gaps", 0, "EXACT", ""), served)
