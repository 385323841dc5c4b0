"""Killing workers and filling the disk leaves no trace in what a run records."""

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from specqual import fixtures
from specqual.conformance.drive import DecoderError
from specqual.conformance.verdicts import Status, Verdict
from specqual.contract import Setup
from specqual.soak.about import About
from specqual.soak.chaos import DRILLS, KILLED, PREFIX, REFUSED
from specqual.soak.disk import an_epoch
from specqual.soak.epoch import broken
from specqual.soak.journal import NAME, Journal
from specqual.soak.mayhem import FULL, KILLS, Cramped, Mayhem
from specqual.soak.night import judged
from specqual.soak.records import Epoch, Served
from specqual.soak.run import Soak

from .soak_journals import in_process


def about(*names: str) -> About:
    return About("optimised", Setup(target=fixtures.path("nano/dense")), 3, names)


def named(journal: Journal, name: str) -> int:
    return journal.connection.execute("SELECT count(*) FROM gauges WHERE name = ?", (name,)).fetchone()[0]


def test_a_full_disk_now_and_then_loses_no_epoch(tmp_path):
    journal = Cramped.open(tmp_path / NAME)
    soak = Soak(about(), journal, 1, 1.0)
    soak.segment = journal.begin({"seed": 1})
    troubles = []
    for number in range(3 * FULL):
        soak._record(Epoch("mixed", number, "EXACT", ""), Served(0, 0.0, 1.0, 0.0))
        troubles.append(soak.trouble)
        assert len(journal.done()) == number + 1 - (soak.trouble is not None)  # whole or not at all
        soak._write()
        assert soak.trouble is None and len(journal.done()) == number + 1
    assert sum(trouble is not None for trouble in troubles) == named(journal, REFUSED) >= 3


def test_a_full_disk_is_told_as_that_and_what_waits_goes_in_once_there_is_room(tmp_path):
    journal = Journal.open(tmp_path / NAME)
    soak = Soak(about(), journal, 1, 1.0)
    soak.segment = journal.begin({"seed": 1})
    (pages,) = journal.connection.execute("PRAGMA page_count").fetchone()
    journal.connection.execute(f"PRAGMA max_page_count = {pages}")
    soak._record(an_epoch(0), Served(0, 0.0, 1.0, 0.0))
    assert soak.trouble == "database or disk is full" and not journal.done()
    journal.connection.execute(f"PRAGMA max_page_count = {pages + 100}")
    soak._write()
    assert soak.trouble is None and journal.done() == {("disk", 0)}


def test_a_drill_that_broke_is_no_pass(tmp_path):
    names = [PREFIX + name for name in DRILLS]
    journal = Journal.open(tmp_path / NAME)
    segment = journal.begin(about(*names, "gaps").json())
    for name in names[1:]:
        journal.add(segment, Epoch(name, 0, "EXACT", "", {"faults put in": 1}), Served(0, 0.0, 1.0, 0.0))
    journal.add(segment, broken((names[0], 0), DecoderError("make raised")), Served(0, 0.0, 1.0, 0.0))
    found = judged(journal)
    assert found.decisions["chaos"].verdict is Verdict.ERROR and found.status is Status.ERROR
    assert "make raised" in found.decisions["chaos"].detail


def test_a_disk_that_stays_full_ends_clearly_and_is_gone_on_with(tmp_path):
    class Full(Journal):
        def add(self, *arguments):
            raise sqlite3.OperationalError("database or disk is full")

    journal = Full.open(tmp_path / NAME)
    soak = Soak(about("gaps"), journal, 1, 0.0)
    soak._record(Epoch("gaps", 0, "EXACT", ""), Served(0, 0.0, 1.0, 0.0))
    assert soak.run() == "time is up, and the journal could not be written: database or disk is full"
    assert not journal.done()
    journal.close()
    again = Journal.open(tmp_path / NAME)
    soak.journal, soak.trouble = again, None
    assert soak.run() == "time is up" and again.done() == {("gaps", 0)}


class Busy:
    """A worker as mayhem sees it."""

    def __init__(self, task, pid):
        self.task, self.process = task, self
        self.pid = pid


def test_no_epoch_is_killed_twice_and_idle_workers_are_left_alone(tmp_path, monkeypatch):
    killed, now = [], [0.0]
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    journal = Journal.open(tmp_path / NAME)
    soak = Soak(about(), journal, 2, 1.0)
    mayhem = Mayhem(3, lambda: now[0])
    soak.team = [Busy(None, 1), Busy(("mixed", 4), 2)]
    mayhem.tick(soak)
    assert not killed
    now[0] += KILLS[1]
    mayhem.tick(soak)
    assert killed == [(2, signal.SIGKILL)] and named(journal, KILLED) == 1
    soak.died[("mixed", 4)] = 1
    now[0] += KILLS[1]
    mayhem.tick(soak)
    assert len(killed) == 1


def test_rows_are_those_of_a_quiet_run_when_workers_are_killed(tmp_path: Path):
    quiet, wild = Journal.open(tmp_path / "quiet.sqlite"), Cramped.open(tmp_path / NAME)
    in_process(about("gaps"), quiet, 1)
    killed = []

    def kill(soak: Soak) -> None:
        (worker,) = soak.team
        if soak.journal.done():
            soak.stop("enough")
        elif worker.task is not None and not killed:
            killed.append(worker.task)
            os.kill(worker.process.pid, signal.SIGKILL)

    assert Soak(about("gaps"), wild, 1, 120.0, kill).run() == "enough"
    assert killed == [("gaps", 0)] and list(wild.rows()) == list(quiet.rows())


def test_drills_come_first_and_are_judged(tmp_path):
    name = PREFIX + "the disk is full"
    journal = Journal.open(tmp_path / NAME)
    in_process(about(name, "gaps"), journal, 1)
    assert journal.done() == {(name, 0)}
    found = judged(journal).decisions["chaos"]
    assert found.verdict == "EXACT" and "faults put in by 1 drills, 0 skipped" in found.detail
    assert "0 workers killed" in found.detail
    asked = PREFIX + next(iter(DRILLS))
    other = Journal.open(tmp_path / "other.sqlite")
    other.begin(about(asked, "gaps").json())
    assert judged(other).decisions["chaos"].verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("chaos", [False, True])
def test_chaos_is_a_row_only_where_it_was_asked_for(tmp_path, chaos):
    journal = Journal.open(tmp_path / NAME)
    journal.begin(about(*([PREFIX + "the disk is full"] if chaos else []), "gaps").json())
    assert ("chaos" in judged(journal).decisions) == chaos
