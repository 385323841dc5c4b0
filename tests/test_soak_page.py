"""The page of a soak run is whole, asks nobody, and can be had while the run goes on."""

import re

import pytest

from specqual.cli import main
from specqual.soak.charts import GAUGES
from specqual.soak.glance import glance
from specqual.soak.journal import Journal
from specqual.soak.night import judged
from specqual.soak.page import PAGES, SHOWN, Press, page, write
from specqual.soak.records import Violation
from specqual.soak.series import running

from .soak_journals import HOSTILE, written

SECTIONS = ("violations", "checked", "hazards", "charts", "run")


def rendered(file, running=False) -> str:
    journal = Journal.read(file)
    return page(journal, judged(journal), running)


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> str:
    return rendered(written(tmp_path_factory.mktemp("clean")))


def test_every_section_is_there_in_order(clean):
    places = [clean.index(f'class="part" id="{name}"') for name in SECTIONS]
    assert places == sorted(places)
    assert 'memory</td><td class="verdict holds">HOLDS' in clean
    assert "Nothing that was looked at." in clean and "exit status 2" in clean  # a scenario had no epoch


def test_checkpoints_are_named_and_not_where_they_lie(clean):
    assert "<h1>optimised on nano/hybrid with nano/hybrid-dflash2</h1>" in clean and "/checkpoints" not in clean


def test_every_plot_is_there(clean):
    drawn = [id for id, _, gauge, *_ in GAUGES if gauge not in ("device memory", "graph captures")]
    for name in ("acceptance-length", *drawn, "evidence-1", "regret"):
        assert f'<figure id="{name}">' in clean, name
    assert clean.count("<svg") == len(drawn) + 3


def test_nothing_is_asked_for_and_nothing_runs(clean):
    assert "<script" not in clean and "<link" not in clean and "<img" not in clean
    assert not re.search(r'(?:src|href)="(?!#)', clean) and "url(" not in clean and "@import" not in clean


def test_it_is_light_and_dark(clean):
    assert "color-scheme: light dark" in clean and "prefers-color-scheme: dark" in clean


def test_a_violation_is_told_with_its_bundle_and_nothing_in_it_is_markup(tmp_path):
    found = [Violation("regret", f"token 7 {HOSTILE}", {"tokens": [1, 2], "who": HOSTILE})]
    text = rendered(written(tmp_path, violations=found))
    assert "token 7 &lt;script&gt;" in text and "&#34;tokens&#34;: [1, 2]" in text and "<script" not in text
    assert "Nothing that was looked at." not in text and "<b>1</b> epoch VIOLATED" in text


def test_of_many_violations_the_first_are_shown_and_the_others_counted(tmp_path):
    text = rendered(written(tmp_path, violations=[Violation(f"oracle {k % 2}", "off", {}) for k in range(SHOWN + 3)]))
    assert text.count('class="failure"') == SHOWN and "and 3 more in the journal" in text


def test_segments_say_how_they_ended(clean):
    assert re.search(r"<td>1</td>.*<td>0:10:00</td><td>20</td><td>killed</td>", clean)
    assert re.search(r"<td>2</td>.*<td>20</td><td>the time was up</td>", clean)


def test_it_can_be_had_while_a_run_writes_even_before_its_first_epoch(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    journal.begin({"seed": 7, "decoder": "optimised", "target": "nano/hybrid"})
    journal.connection.execute("BEGIN IMMEDIATE")  # as in the midst of an epoch's transaction
    text = rendered(tmp_path / "soak.sqlite", running=True)
    journal.connection.execute("COMMIT")
    assert "read while it runs" in text and "it runs</td>" in text and "Nothing yet." in text


def test_a_hazard_that_never_occurred_stands_out(clean):
    assert '<span class="never">acceptances 0</span>' in clean and "<span>rejections 1,600</span>" in clean
    assert "<td>gaps</td><td>0</td>" in clean  # a scenario that had no epoch yet


def test_the_page_in_a_folder_is_replaced_at_one_stroke(tmp_path):
    first, second = write("one", tmp_path), write("two", tmp_path)
    assert first == second and second.read_text() == "two" and [f.name for f in tmp_path.iterdir()] == [second.name]


def test_a_press_prints_now_and_then_and_takes_little_of_the_time(tmp_path):
    times = iter([0.0, PAGES - 1, PAGES, PAGES + 9, PAGES + 9, 2 * PAGES + 9, 3 * PAGES + 9])
    journal = Journal.open(written(tmp_path, minutes=4))
    press = Press(journal, tmp_path, lambda: next(times))
    file = tmp_path / "index.html"
    press.tick()
    assert not file.exists()
    press.tick()  # which took nine seconds
    assert "read while it runs" in file.read_text(encoding="utf-8")
    file.unlink()
    press.tick()
    press.tick()
    assert not file.exists()
    assert press.print(running=False).status == 2 and glance(journal).log10_e == pytest.approx(-0.00675, rel=1e-3)


def test_a_page_that_cannot_be_rendered_ends_no_run_and_is_told_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("specqual.soak.page.charts", lambda *arguments: 1 / 0)
    press = Press(Journal.open(written(tmp_path, minutes=4)), tmp_path, iter([0.0, PAGES, PAGES, PAGES]).__next__)
    press.tick()
    with pytest.raises(ZeroDivisionError):
        press.print(running=False)


def test_the_page_of_a_run_is_had_without_serving_anything(tmp_path, capsys):
    written(tmp_path, minutes=4)
    assert main(["soak", "--page", "--report", str(tmp_path)]) == 2
    assert "exit status 2" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "laws: HOLDS" in capsys.readouterr().out
    assert main(["soak", "--page", "--report", str(tmp_path / "none")]) == 2
    assert "there is no journal" in capsys.readouterr().err


def test_a_run_goes_on_while_it_is_heard_of(tmp_path):
    journal = Journal.open(tmp_path / "soak.sqlite")
    segment = journal.begin({"seed": 1})
    assert running(journal) and not running(Journal.open(written(tmp_path / "over", minutes=2)))
    journal.connection.execute("UPDATE segments SET started = started - 1000")
    assert not running(journal)
    journal.gauge(0, {"requests": 1.0})
    assert running(journal)
    journal.end(segment, "SIGINT")
    assert not running(journal)
