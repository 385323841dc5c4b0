"""The report: complete or refused, derived again or contradicted, escaped wherever it is shown."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specqual.cli import main
from specqual.conformance.audit import audit
from specqual.conformance.report import BadReport, load
from specqual.contract.keys import DEEPEST, parse_json

from .reports import HOSTILE, RUN, lines, resealed, result, rewrite, written


def test_a_report_states_how_it_was_made_and_is_derived_again(tmp_path, capsys):
    written(tmp_path, result(), result("GE-2"))
    header = load(tmp_path).header
    assert {"commit", "versions", "threads", "seed", "claims", "profile", "dtype"} <= header.keys()
    assert audit(tmp_path).derived == 2
    assert main(["verify", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 verdicts derived again" in said and "integrity, not authorship" in said


def test_a_report_without_footer_is_truncated(tmp_path, capsys):
    written(tmp_path, result())
    rewrite(tmp_path, lines(tmp_path)[:-1])
    with pytest.raises(BadReport, match="truncated"):
        load(tmp_path)
    assert main(["verify", str(tmp_path)]) == 2
    assert "truncated" in capsys.readouterr().err


def test_half_a_line_is_refused(tmp_path):
    written(tmp_path, result())
    text = (tmp_path / "report.jsonl").read_text()
    (tmp_path / "report.jsonl").write_text(text[: len(text) // 2])
    with pytest.raises(BadReport):
        load(tmp_path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_altered_line_is_refused(tmp_path, number):
    written(tmp_path, result())
    kept = lines(tmp_path)
    kept[number] = kept[number].replace("0", "1", 1)
    rewrite(tmp_path, kept)
    with pytest.raises(BadReport, match=rf"line {number + 1}"):
        load(tmp_path)


def test_a_line_taken_out_is_noticed(tmp_path):
    written(tmp_path, result(), result("GE-2"), result("GE-3"))
    kept = lines(tmp_path)
    rewrite(tmp_path, kept[:2] + kept[3:])
    with pytest.raises(BadReport, match="line 3"):
        load(tmp_path)


def test_a_verdict_that_does_not_follow_from_its_evidence_is_contradicted(tmp_path, capsys):
    """Even where the whole chain was forged anew."""
    written(tmp_path, result(output=[3], logprob=[-9.0]))
    found = audit(tmp_path)
    assert found.differences and "its evidence says VIOLATED" in found.differences[0]
    assert main(["verify", str(tmp_path)]) == 1
    assert "GE-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clause": "GE-99"}, "no known clause"),
        ({"verdict": "FINE"}, "no known clause and verdict"),
        ({"evidence": {"kind": "magic", "cases": [], "guards": []}}, "evidence"),
        ({"evidence": None}, "evidence"),
    ],
)
def test_a_well_sealed_line_with_strange_content_is_refused(tmp_path, change, message):
    written(tmp_path, result())
    contents = [json.loads(line) for line in lines(tmp_path)]
    contents[1] |= change
    contents[2]["counts"] = {contents[1]["verdict"]: 1}
    resealed(tmp_path, contents)
    with pytest.raises(BadReport, match=message):
        audit(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]\n", b"\xff\xfe\n", b'{"type":"header"}\n', b"[" * 100_000, b"NaN\n"])
def test_what_is_no_report_is_refused(tmp_path, content):
    (tmp_path / "report.jsonl").write_bytes(content)
    with pytest.raises(BadReport):
        load(tmp_path)


def test_a_missing_report_is_one_clear_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert "report.jsonl: cannot be read" in capsys.readouterr().err


def test_the_page_escapes_every_text_and_loads_nothing(tmp_path):
    bad = result(output=[3], logprob=[-9.0]) | {"detail": HOSTILE, "proof": HOSTILE, "verdict": "VIOLATED"}
    page = (written(tmp_path, bad) / "index.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in page


def test_junit_has_the_clause_ids_and_is_well_formed_whatever_the_text(tmp_path):
    bad = result("GE-2", "VIOLATED", output=[3], logprob=[-9.0]) | {"detail": HOSTILE, "proof": HOSTILE}
    tree = xml.parse(written(tmp_path, result(), bad) / "junit.xml").getroot()
    assert [case.get("name") for case in tree] == ["GE-1", "GE-2"]
    assert tree.get("failures") == "1"


def test_nothing_is_written_before_the_first_verdict(tmp_path):
    written(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_status_that_does_not_follow_from_the_verdicts_is_contradicted(tmp_path):
    written(tmp_path, result())
    contents = [json.loads(line) for line in lines(tmp_path)]
    contents[2]["status"] = 1
    resealed(tmp_path, contents)
    assert audit(tmp_path).differences == ("exit status: the report says 1, its verdicts say 0",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "SKIPPED"}, "the report says SKIPPED, yet it holds evidence to decide by"),
        ({"verdict": "ERROR"}, "the report says ERROR, yet it holds evidence to decide by"),
        ({"verdict": "WAIVED"}, "the report says WAIVED, without a waiver"),
    ],
)
def test_a_violation_cannot_be_relabelled_as_what_nobody_derives(tmp_path, change, said):
    written(tmp_path, result(output=[3], logprob=[-9.0]) | change)
    assert f"GE-1: {said}" in audit(tmp_path).differences


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def values(expected: Any, actual: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "values", "cases": [{"what": "x", "expected": expected, "actual": actual} | more], "guards": []}


@pytest.mark.parametrize(
    "evidence",
    [
        values(0.5, 10**400),
        values(0.5, 0.5, tolerance=10**400),
        {
            "kind": "counts",
            "cases": [{"label": "", "p": [1e-18, 1.0], "counts": [1, 10**18], "alpha": 1e-6, "slack": 0.0}],
            "guards": [],
        },
    ],
    ids=["huge integer", "huge tolerance", "more samples than anybody draws"],
)
def test_numbers_beyond_reason_are_refused_at_once(tmp_path, evidence):
    written(tmp_path, result() | {"evidence": evidence | {"notes": {}}})
    with pytest.raises(BadReport, match="line 2: GE-1: evidence"):
        audit(tmp_path)


def test_depths_beyond_reason_are_refused_while_a_line_is_read(tmp_path):
    written(tmp_path, result() | {"evidence": values(nested(DEEPEST), nested(DEEPEST)) | {"notes": {}}})
    with pytest.raises(BadReport, match=f"line 2: is not JSON .*more than {DEEPEST} deep"):
        audit(tmp_path)


def test_how_deep_a_file_may_be_nested_does_not_depend_on_the_interpreter():
    for depth, opening, closing in ((DEEPEST, b"[", b"]"), (DEEPEST, b'{"x":', b"}")):
        assert parse_json(opening * depth + b"0" + closing * depth)
        for deeper in (depth + 1, 20 * depth, 2000 * depth):  # the last is too deep for any parser
            with pytest.raises(ValueError):
                parse_json(opening * deeper + b"0" + closing * deeper)


@pytest.mark.parametrize(
    "content", [b'{"type":"header","format":1e999}\n', b'{"type":"header","x":' + b"[" * 900 + b"]" * 900 + b"}\n"]
)
def test_what_no_report_writes_is_refused_by_its_line(tmp_path, content):
    (tmp_path / "report.jsonl").write_bytes(content)
    with pytest.raises(BadReport, match="line 1"):
        load(tmp_path)


def test_a_terminal_never_obeys_a_report(tmp_path, capsys):
    written(tmp_path, result(output=[3], logprob=[-9.0], label="\x1b[2J"), result("GE-2") | {"detail": "\x1b[2J"})
    contents = [json.loads(line) for line in lines(tmp_path)]
    contents[0]["decoder"] = "\x1b]0;owned\x07"
    contents[1]["evidence"]["cases"][0] |= {"plain": [2], "bitwise": True, "argmax": [3]}
    resealed(tmp_path, contents)
    assert main(["verify", str(tmp_path)]) == 1
    written(tmp_path, result())
    contents = [json.loads(line) for line in lines(tmp_path)]
    contents[0]["target"] = "\x1b]0;owned\x07"
    replay = replace(RUN, setup=replace(RUN.setup, target=Path("/\x1b]0;owned\x07"))).replay("GE-1")
    contents[1]["replay"] = replay
    resealed(tmp_path, contents)
    (tmp_path / "index.html").unlink()  # they show another target
    (tmp_path / "junit.xml").unlink()
    assert main(["verify", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07" in shown and "\\x1b[2J" in shown
    assert "\x1b" not in shown and "\x07" not in shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """Every path into a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def put(value: Any, path: tuple, new: object) -> object:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A folder with a sound report, to be written over."""
    return written(tmp_path_factory.mktemp("fuzz"), result())


@pytest.fixture(scope="module")
def content(sound) -> bytes:
    return (sound / "report.jsonl").read_bytes()


@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_well_sealed_line_is_read_or_refused(sound, content, data):
    contents = [json.loads(line) for line in content.splitlines()]
    number = data.draw(st.integers(0, len(contents) - 1))
    path = data.draw(st.sampled_from(places(contents[number])[1:]))
    contents[number] = put(contents[number], path, data.draw(JSON))
    resealed(sound, contents)
    with suppress(BadReport):
        audit(sound)


@settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10_000), st.binary(max_size=8))
def test_any_bytes_are_read_or_refused(sound, content, place, new):
    place %= len(content)
    (sound / "report.jsonl").write_bytes(content[:place] + new + content[place + len(new) :])
    with suppress(BadReport):
        audit(sound)
