"""Shards of one run become one report, or say why they are none."""

import json
from dataclasses import replace

import pytest

from specqual.cli import main
from specqual.conformance.audit import audit
from specqual.conformance.facts import plain
from specqual.conformance.merge import Unlike, merge
from specqual.conformance.report import BadReport

from .reports import CLAIMS, RUN, lines, resealed, result, rewrite, skipped, violated, written


def test_shards_become_one_report_that_verifies(tmp_path, capsys):
    written(tmp_path / "a", result("GE-2"), result("GE-1"))
    written(tmp_path / "b", result("GE-3"), result("GE-1"))
    assert main(["merge", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "whole")]) == 0
    assert "3 verdicts of 2 reports: EXACT 3" in capsys.readouterr().out
    found = audit(tmp_path / "whole")
    assert [line["clause"] for line in found.loaded.verdicts] == ["GE-1", "GE-2", "GE-3"]
    assert not found.differences
    assert {"index.html", "junit.xml", "report.jsonl"} == {path.name for path in (tmp_path / "whole").iterdir()}


def test_the_status_is_that_of_the_whole_run(tmp_path):
    written(tmp_path / "a", result("GE-2"))
    written(tmp_path / "b", violated(), status=1)
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")[-1]["status"] == 1


@pytest.mark.parametrize(
    ("there", "field"),
    [
        ({"claims": plain(replace(CLAIMS, engine="other"))}, "claims.engine: is"),
        ({"offers": ["Traced"]}, "offers: is"),
        ({"budget": {}}, "budget: is None in"),
    ],
)
def test_unlike_headers_are_refused_by_field(tmp_path, there, field):
    written(tmp_path / "a", result("GE-1"))
    contents = [json.loads(line) for line in lines(written(tmp_path / "b", result("GE-2")))]
    resealed(tmp_path / "b", [contents[0] | there, *contents[1:]])
    with pytest.raises(Unlike, match=field):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_shards_of_unlike_seeds_are_refused(tmp_path):
    for seed in (0, 1):
        line = result(f"GE-{seed + 1}") | {"replay": replace(RUN, seed=seed).replay(f"GE-{seed + 1}")}
        written(tmp_path / str(seed), line, seed=seed)
    with pytest.raises(Unlike, match="seed: is 0 in"):
        merge([tmp_path / "0", tmp_path / "1"], tmp_path / "whole")


def test_a_clause_decided_twice_must_agree(tmp_path):
    written(tmp_path / "a", result("GE-1"))
    written(tmp_path / "b", skipped("GE-1", "the decoder refuses: not today"), status=2)
    with pytest.raises(Unlike, match="GE-1: verdict is 'EXACT' in"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")


def test_an_altered_shard_is_refused_by_name(tmp_path):
    written(tmp_path / "a", result("GE-1"))
    rewrite(tmp_path / "a", lines(tmp_path / "a")[:-1])
    with pytest.raises(BadReport, match=r"a: line 2: the report is truncated"):
        merge([tmp_path / "a"], tmp_path / "whole")
    written(tmp_path / "b", result("GE-1", output=[3], logprob=[-9.0]))  # which is a violation
    with pytest.raises(BadReport, match="b: GE-1: the report says EXACT, its evidence says VIOLATED"):
        merge([tmp_path / "b"], tmp_path / "whole")


def test_a_shard_is_not_overwritten(tmp_path, capsys):
    written(tmp_path / "a", result("GE-1"))
    assert main(["merge", str(tmp_path / "a"), "--out", str(tmp_path / "a")]) == 2
    assert "--out: " in capsys.readouterr().err
