"""The page says what was checked, what could have been seen and what was not; its plots show what was recorded."""

import re

import pytest

from specqual.conformance.charts import EDGES, by_length, by_position, charts, regrets, trajectory, wilson
from specqual.conformance.plot import Plot, linear, named
from specqual.conformance.sight import visible

from .reports import HOSTILE, result, skipped, written

ROUNDS = [[0, 4, 2], [2, 4, 0], [3, 4, 4], [9, 2, 1], [11, 0, 0]]


def page_of(tmp_path, *results) -> str:
    return (written(tmp_path, *results) / "index.html").read_text(encoding="utf-8")


def evidence(kind, *cases, notes=None):
    return {"kind": kind, "cases": list(cases), "guards": [], "notes": notes or {}}


def titles(chart) -> list[str]:
    return re.findall(r"<title>([^<]*)</title>", chart.svg)


def test_acceptance_per_position_counts_the_rounds_that_drafted_it():
    said = titles(by_position([tuple(r) for r in ROUNDS if r[1]]))
    assert "position 1: 3 of 4 rounds, 0.750" in said
    assert "position 3: 1 of 3 rounds, 0.333" in said


def test_acceptance_against_length_is_a_mean_per_stretch():
    said = titles(by_length([tuple(r) for r in ROUNDS if r[1]]))
    assert "2 rounds, 2.000 accepted" in said  # in steps of two tokens
    assert any(one.startswith("1 rounds, 1.000") for one in said)


def test_an_interval_holds_the_share_and_shrinks_with_the_trials():
    for successes, trials in ((0, 5), (5, 5), (3, 7), (300, 700)):
        low, high = wilson(successes, trials)
        assert 0 <= low <= successes / trials <= high <= 1
    assert wilson(300, 700)[1] - wilson(300, 700)[0] < wilson(3, 7)[1] - wilson(3, 7)[0]


def test_the_regret_histogram_holds_every_token_once():
    line = result(output=[3], logprob=[-0.53]) | {"clause": "GE-2"}
    chart = regrets([result(), line])
    assert "8 tokens judged by GE-1, GE-2" in chart.caption
    assert titles(chart) == ["7", "1"]
    assert len(EDGES) + 1 == len(re.findall(r'class="tick"[^>]*middle', chart.svg))


def test_the_growth_of_evidence_is_drawn_with_its_limit():
    case = {"label": HOSTILE, "alpha": 1e-6, "trajectory": [[0, 0.0], [100, 2.5], [200, 7.0]]}
    chart = trajectory({"clause": "LAW-6", "evidence": evidence("bets", case)})
    assert "polyline" in chart.svg and "enough to reject" in chart.svg and "<script" not in chart.svg
    (points,) = re.findall(r'points="([^"]*)"', chart.svg)
    heights = [float(pair.split(",")[1]) for pair in points.split()]
    limit = float(re.search(r'class="limit"[^>]*y1="([\d.]+)"', chart.svg)[1])
    assert heights[2] < limit < heights[1] < heights[0]  # SVG counts downwards; 7 is beyond the limit of 6.3
    assert trajectory({"clause": "LAW-6", "evidence": evidence("bets")}) is None


def test_marks_stay_inside_the_axes():
    plot = Plot("t", named("x", ["a", "b"]), linear("y", 0, 1))
    assert plot.up(-5) == plot.up(0) > plot.up(1) == plot.up(9)
    assert linear("y", 0, 0.37).high >= 0.37 and linear("y", 0, 0.0).high > 0


def test_charts_come_from_the_lines_and_are_missing_where_there_is_nothing(tmp_path):
    live = result("LIVE-1") | {"evidence": evidence("occurrences", notes={"rounds": ROUNDS})}
    assert [chart.id for chart in charts([live, result()])] == ["acceptance-position", "acceptance-length", "regret"]
    page = page_of(tmp_path, live, result())
    assert page.count("<svg") == 3 and "draft length" not in page.split("</svg>")[0]
    assert "<svg" not in page_of(tmp_path / "none", live | {"evidence": evidence("occurrences")})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (evidence("greedy", {"envelope": 0.25}, {"envelope": 0.5}), "a token 0.5 nats worse than the best"),
        (evidence("greedy", {"envelope": 0.0}), "any difference"),
        (evidence("values", {"tolerance": 1e-3}, {}), "a difference beyond 0.001"),
        (
            evidence("draws", {"slack": 0.1, "decisions": [{"slack": 0.3}, {}]}),
            "a decision 0.3 in probability off its edge",
        ),
        (evidence("streams", {"names": []}), "any difference"),
        (evidence("occurrences"), ""),
        (evidence("greedy", {"envelope": "wide"}), ""),
    ],
)
def test_what_a_clause_would_have_seen_follows_from_its_evidence(given, said):
    assert visible(given) == said


def test_what_would_have_been_seen_by_counting_shrinks_with_the_samples():
    few, many = (
        evidence("counts", {"p": [0.5, 0.5, 0.0], "counts": [n, n, 0], "alpha": 1e-6, "slack": 0.0})
        for n in (100, 10_000)
    )
    bias = [float(re.search(r"of ([\d.]+)", visible(one))[1]) for one in (few, many)]
    assert bias[1] < bias[0] / 5


def test_the_page_leads_from_what_fails_to_what_was_not_seen(tmp_path):
    bad = result("GE-2", "VIOLATED", output=[3], logprob=[-9.0])
    bad["proof"] = "GE-2 VIOLATED\nRequired   equality\nComparisons 41\nReplay     pytest --clause GE-2"
    page = page_of(tmp_path, result(), bad, skipped("GE-4", "the decoder does not offer Scripted"))
    parts = [
        page.index(f'class="part" id="{name}"') for name in ("failed", "claims", "checked", "unseen", "budget", "run")
    ]
    assert parts == sorted(parts)
    assert "<dt>Required</dt><dd>equality</dd><dt>Comparisons</dt><dd>41</dd>" in page
    assert re.search(r'href="#GE-4">GE-4</a></dt><dd>the decoder does not offer Scripted', page)
    assert "holds 1" in page and "fails 1" in page and "unseen 1" in page and "#chapter-GE:checked" in page


def test_a_clean_page_has_nothing_that_fails(tmp_path):
    page = page_of(tmp_path, result())
    assert 'id="failed"' not in page and "Every clause that was asked for came to a verdict" in page
    assert "was decided without chance" in page
