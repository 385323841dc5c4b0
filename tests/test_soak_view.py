"""The live view says the same on a terminal and in a file, once a minute and whenever something is wrong."""

from io import StringIO

import pytest
from rich.console import Console

from specqual.soak.journal import Journal
from specqual.soak.records import Violation
from specqual.soak.view import HEARTBEAT, LOOKED, Dashboard, Plain, view

from .soak_journals import written


class Watch:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shown(tmp_path):
    watch, out = Watch(), StringIO()
    file = written(tmp_path, minutes=4)
    return watch, out, file


def test_plain_lines_hold_a_heartbeat_each_minute(shown):
    watch, out, file = shown
    with view(Journal.read(file), Console(file=out, width=80), watch) as plain:
        assert isinstance(plain, Plain)
        for _ in range(3 * 60):
            watch.now += 1.0
            plain.tick()
        lines = out.getvalue().splitlines()
        assert len(lines) == 3 == 3 * 60 / HEARTBEAT
    assert lines[0].startswith("0:04:01  epochs 8  requests 960  tokens/s 1,200")
    assert "violations 0" in lines[0] and "\x1b" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 4  # the last word


def test_a_violation_is_told_at_once_and_once(shown, tmp_path):
    watch, out, file = shown
    bad = written(tmp_path / "bad", minutes=4, violations=[Violation("regret", "0.5 nats at token 7", {"seed": 1})])
    with Plain(Journal.read(file), Console(file=out), watch) as plain:
        plain._journal = Journal.read(bad)  # what another process has written meanwhile
        for _ in range(4):
            watch.now += LOOKED
            plain.tick()
    assert out.getvalue().count("VIOLATED mixed epoch 3, regret: 0.5 nats at token 7") == 1


def test_a_terminal_gets_a_dashboard(shown):
    watch, out, file = shown
    with view(Journal.read(file), Console(file=out, force_terminal=True, width=120, height=40), watch) as dashboard:
        assert isinstance(dashboard, Dashboard)
        dashboard.tick()
    text = out.getvalue()
    for said in ("specqual soak: optimised on nano/hybrid", "tokens/s", "worst regret", "mixed 8", "EXACT 8"):
        assert said in text
