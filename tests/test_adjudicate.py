"""Recorded runs: any engine's logs, judged without the engine."""

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from specqual import fixtures
from specqual.cli import main
from specqual.conformance.adjudicate import FORMAT, Adjudication, adjudicate, sealed_up
from specqual.conformance.evidence import decide
from specqual.conformance.judge import Judge
from specqual.conformance.recorded import read_log
from specqual.contract import Decoder, Request, Setup, Tokens
from specqual.decoder import make as optimised
from specqual.reference import make as reference

DENSE = fixtures.path("nano/dense")
RECORDED = fixtures.ROOT / "recorded" / "vllm-cpu-ngram-smollm2"
PROMPTS = tuple(tuple(1 + (7 * i + j * j) % 94 for j in range(3 + 5 * i)) for i in range(10))
Output = tuple[int, ...]


def run(decoder: Decoder, tokens: int = 16) -> tuple[Output, ...]:
    found = []
    for prompt in PROMPTS:
        decoder.submit(Request(prompt=prompt, max_tokens=tokens))
        ids: list[int] = []
        while events := decoder.step():
            ids += [token for event in events if isinstance(event, Tokens) for token in event.ids]
        found.append(tuple(ids))
    return tuple(found)


@lru_cache(maxsize=1)
def exact() -> tuple[Output, ...]:
    return run(reference(Setup(target=DENSE)))


@lru_cache(maxsize=1)
def margins() -> list[tuple[float, int, int, int]]:
    """(margin, request, place, second best token) of every token of the exact outputs, narrowest first."""
    judge, found = Judge.of(DENSE), []
    for index, (prompt, output) in enumerate(zip(PROMPTS, exact(), strict=True)):
        for place in range(len(output)):
            best, second = judge.top(Request(prompt=prompt, max_tokens=1), output[:place], 2)
            found.append((best[1] - second[1], index, place, second[0]))
    return sorted(found)


def replaced(index: int, place: int, token: int) -> tuple[Output, ...]:
    """The exact outputs with one that ends in another token."""
    outputs = list(exact())
    outputs[index] = (*outputs[index][:place], token)
    return tuple(outputs)


def write(path: Path, outputs: Sequence[Output], dtype: str | None = "float32", **header: Any) -> Path:
    other = {} if dtype is None else {"dtype": dtype}
    lines = [header] if header else []
    lines += [{"prompt_ids": p, "output_ids": o} | other for p, o in zip(PROMPTS, outputs, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def judged(on: Path, off: Path | None = None, **options: Any) -> Adjudication:
    return adjudicate(DENSE, read_log(on), None if off is None else read_log(off), **options)


def verdicts(found: Adjudication) -> list[str]:
    compared = [] if found.comparison is None else [found.comparison.decision.verdict]
    return [*(arm.decision.verdict for arm in found.arms.values()), *compared]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_what_the_reference_says_is_exact(tmp_path: Path, dtype: str):
    log = write(tmp_path / "a.jsonl", exact(), dtype)
    found = judged(log, log)
    assert verdicts(found) == ["EXACT"] * 3 and found.status == 0
    assert found.comparison is not None and found.comparison.pairs == len(PROMPTS) and not found.comparison.flips


def test_a_token_that_is_clearly_second_best_is_violated_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    margin, index, place, token = margins()[-1]
    on = write(tmp_path / "on.jsonl", replaced(index, place, token), "bfloat16")
    off = write(tmp_path / "off.jsonl", exact(), "bfloat16")
    found = judged(on, off)
    assert margin > found.envelope.nats
    assert verdicts(found) == ["VIOLATED", "EXACT", "VIOLATED"]
    decision = found.arms["on"].decision
    assert (decision.case, decision.place) == (index, place)
    assert main(["adjudicate", "--target", str(DENSE), "--on", str(on), "--off", str(off)]) == 1
    out = capsys.readouterr().out
    assert f"on.jsonl line {index + 1}, output_ids[{place}]: {token} " in out and "not a tie" in out


def test_a_tie_is_explained_in_the_dtype_that_rounds_and_in_no_other(tmp_path: Path):
    margin, index, place, token = margins()[0]
    outputs, expected = replaced(index, place, token), exact()
    found = judged(
        write(tmp_path / "on.jsonl", outputs, "bfloat16"), write(tmp_path / "off.jsonl", expected, "bfloat16")
    )
    assert 1e-9 < margin < found.envelope.nats
    assert verdicts(found)[:2] == ["TIE-EXPLAINED", "EXACT"]
    assert found.comparison is not None
    (flip,) = found.comparison.flips
    assert flip.tie and flip.place == place and flip.tokens == (token, expected[index][place])
    assert flip.margin == pytest.approx(margin, abs=1e-3)
    assert found.comparison.decision.verdict == "TIE-EXPLAINED" and found.status == 0
    assert verdicts(judged(write(tmp_path / "wide.jsonl", outputs, "float64"))) == ["VIOLATED"]


def test_a_bfloat16_run_of_the_optimised_decoder_passes(tmp_path: Path):
    log = write(tmp_path / "a.jsonl", run(optimised(Setup(target=DENSE, dtype="bfloat16"))), "bfloat16")
    assert verdicts(judged(log))[0] in {"EXACT", "TIE-EXPLAINED"}


def planted(count: int, low: float, high: float) -> tuple[Output, ...]:
    """The exact outputs, of which so many end in a second best token that is between `low` and `high` nats worse."""
    outputs, left = list(exact()), count
    for margin, index, place, token in margins():
        if left and low <= margin < high and outputs[index] == exact()[index]:
            outputs[index], left = (*outputs[index][:place], token), left - 1
    assert not left
    return tuple(outputs)


@pytest.mark.parametrize(
    ("count", "low", "high", "verdict"),
    [
        (1, 1.0, 9.0, "VIOLATED"),
        (1, 0.2, 0.3, "TIE-EXPLAINED"),  # by itself what rounding may do to any token
        (5, 0.2, 0.29, "VIOLATED"),
        (5, 0.0, 0.1, "TIE-EXPLAINED"),
    ],
)
def test_planted_second_best_tokens_are_seen_by_how_far_they_are_off_and_by_how_many_requests_have_one(
    tmp_path: Path, count: int, low: float, high: float, verdict: str
):
    found = judged(write(tmp_path / "on.jsonl", planted(count, low, high), "bfloat16"))
    assert verdicts(found) == [verdict], found.arms["on"].decision
    if count > 1 and verdict == "VIOLATED":
        assert high <= found.envelope.nats and f"in {count} of 10 requests" in found.arms["on"].decision.detail


@pytest.mark.parametrize("token", [-1, 10**30])
def test_an_id_outside_the_vocabulary_is_violated(tmp_path: Path, token: int):
    outputs = list(exact())
    outputs[2] = (*outputs[2][:5], token, *outputs[2][6:])
    decision = judged(write(tmp_path / "a.jsonl", outputs)).arms["on"].decision
    assert decision.verdict == "VIOLATED" and (decision.case, decision.place) == (2, 5)
    assert "no token of the vocabulary" in decision.detail


def test_an_output_that_only_one_arm_cuts_short_stays_open(tmp_path: Path):
    outputs = list(exact())
    outputs[1] = outputs[1][:4]
    found = judged(write(tmp_path / "on.jsonl", outputs), write(tmp_path / "off.jsonl", exact()))
    assert verdicts(found) == ["EXACT", "EXACT", "INCONCLUSIVE"] and found.status == 2


def test_a_request_that_only_one_arm_has_stays_open(tmp_path: Path):
    full = write(tmp_path / "off.jsonl", exact())
    short = tmp_path / "on.jsonl"
    short.write_text("".join(full.read_text().splitlines(keepends=True)[1:]))
    found = judged(short, full)
    assert found.comparison is not None and (found.comparison.pairs, found.comparison.alone) == (len(PROMPTS) - 1, 1)
    assert found.status == 2


def test_a_log_without_a_token_is_inconclusive(tmp_path: Path):
    assert verdicts(judged(write(tmp_path / "a.jsonl", [()] * len(PROMPTS)))) == ["INCONCLUSIVE"]


def test_other_keys_are_kept_in_the_report_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log, report = write(tmp_path / "a.jsonl", exact(), engine="mine [bold] 1"), tmp_path / "report.json"
    assert main(["adjudicate", "--target", str(DENSE), "--on", str(log), "--report", str(report)]) == 0
    assert "engine mine [bold] 1, dtype float32" in capsys.readouterr().out
    content = json.loads(report.read_text())
    assert content["arms"]["on"]["header"] == {"engine": "mine [bold] 1"}
    assert content["arms"]["on"]["evidence"]["cases"][0]["other"] == {"dtype": "float32"}
    assert content["arms"]["on"]["decision"]["verdict"] == "EXACT" and content["status"] == 0


GOOD = '{"prompt_ids": [1], "output_ids": [2], "dtype": "float32"}'


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"prompt_ids": [1], ', "line 2: line:"),
        ("[1, 2]", "line 2: line:"),
        ("[" * 100_000, "line 2: line:"),
        ('{"prompt_ids": [1], "prompt_ids": [2], "output_ids": [3]}', "line 2: line:"),
        ('{"prompt_ids": [1], "output_ids": [2], "x": NaN}', "line 2: line:"),
        ('{"output_ids": [2]}', "line 2: prompt_ids: is missing"),
        ('{"prompt_ids": [1]}', "line 2: output_ids: is missing"),
        ('{"prompt_ids": [], "output_ids": [2]}', "line 2: prompt_ids:"),
        ('{"prompt_ids": "1", "output_ids": [2]}', "line 2: prompt_ids:"),
        ('{"prompt_ids": [1], "output_ids": [2, true]}', "line 2: output_ids[1]:"),
        ('{"prompt_ids": [1], "output_ids": [2, 3.0]}', "line 2: output_ids[1]:"),
        ('{"prompt_ids": [1, 95000], "output_ids": [2]}', "line 2: prompt_ids[1]:"),
        ('{"prompt_ids": [1], "output_ids": [2], "dtype": "bfloat16"}', "line 2: dtype:"),
        ('{"prompt_ids": [1], "output_ids": [2], "dtype": "fp4"}', "line 2: dtype:"),
        (json.dumps({"prompt_ids": [1], "output_ids": [2] * 9999}), "line 2: output_ids:"),
    ],
)
def test_a_bad_line_is_one_error_that_names_file_line_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, named: str
):
    log = tmp_path / "bad.jsonl"
    log.write_text(f"{GOOD}\n{line}\n")
    assert main(["adjudicate", "--target", str(DENSE), "--on", str(log)]) == 2
    printed = capsys.readouterr()
    assert not printed.out and printed.err.count("\n") == 1
    assert f"bad.jsonl {named}" in printed.err


def test_logs_that_do_not_belong_together_are_refused(tmp_path: Path):
    narrow, wide = write(tmp_path / "b.jsonl", exact(), "bfloat16"), write(tmp_path / "f.jsonl", exact())
    unsaid, other = write(tmp_path / "u.jsonl", exact(), None), tmp_path / "o.jsonl"
    other.write_text(GOOD + "\n")
    for arguments, options, named in (
        ((narrow, wide), {}, "f.jsonl: dtype:"),
        ((narrow,), {"dtype": "float32"}, "b.jsonl line 1: dtype:"),
        ((unsaid,), {}, "u.jsonl: dtype: no line says it"),
        ((wide, other), {}, "o.jsonl: prompt_ids:"),
    ):
        with pytest.raises(ValueError, match=named.replace(".", r"\.")):
            judged(*arguments, **options)
    assert verdicts(judged(unsaid, dtype="float64")) == ["EXACT"]


def test_the_recorded_pair_is_here_and_parts_in_four_requests():
    logs = {
        name: read_log(RECORDED / f"{name}.jsonl")
        for name in ("float32-off", "float32-on", "bfloat16-off", "bfloat16-on")
    }
    outputs = {name: [request.output for request in log.requests] for name, log in logs.items()}
    assert all(len(log.requests) == 16 and log.dtype() == name.split("-")[0] for name, log in logs.items())
    assert outputs["float32-off"] == outputs["float32-on"]
    assert sum(a != b for a, b in zip(outputs["bfloat16-off"], outputs["bfloat16-on"], strict=True)) == 4


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A report of two arms, of which one leaves the path of the target, and what the command printed."""
    folder, shown = tmp_path_factory.mktemp("recorded"), StringIO()
    on, off = write(folder / "on.jsonl", replaced(*margins()[-1][1:])), write(folder / "off.jsonl", exact())
    asked = ["adjudicate", "--target", str(DENSE), "--on", str(on), "--off", str(off), "--report", str(folder / "r")]
    with redirect_stdout(shown):
        assert main(asked) == 1
    return (folder / "r").read_text(), shown.getvalue()


@pytest.fixture
def report(tmp_path: Path, sound: tuple[str, str]) -> Path:
    """That report, to be written over."""
    (tmp_path / "report.json").write_text(sound[0])
    return tmp_path / "report.json"


def forged(report: Path, forge: Callable[[dict[str, Any]], None]) -> None:
    """Let a forger change a report and seal it anew."""
    content = json.loads(report.read_text())
    del content["seal"]
    forge(content)
    report.write_text(json.dumps(sealed_up(content)))


def test_verify_derives_a_report_of_recorded_runs_again(report: Path, sound: tuple[str, str], capsys):
    content = json.loads(report.read_text())
    seal = content["seal"]
    assert f"sealed {seal}" in sound[1]
    assert main(["verify", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "3 verdicts derived again: dense, exit status 1" in shown
    assert f"seal: {seal}" in shown and "integrity, not authorship" in shown
    assert f"on: on.jsonl, sha256 {content['arms']['on']['sha256']}" in shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "is truncated or no JSON"),
        (lambda text: text.replace('"VIOLATED"', '"EXACT"'), "was altered: the seal does not match"),
        (lambda text: "[]", "is not a report of recorded runs"),
        (lambda text: json.dumps(sealed_up({"format": "x"})), "format 'x' is not"),
        (lambda text: json.dumps(sealed_up({"format": FORMAT})), "is malformed"),
    ],
)
def test_a_truncated_or_altered_report_of_recorded_runs_is_refused(report: Path, capsys, change, said: str):
    report.write_text(change(report.read_text()))
    assert main(["verify", str(report)]) == 2
    assert said in capsys.readouterr().err


def relabelled(content: dict[str, Any]) -> None:
    content["arms"]["on"]["decision"] |= {"verdict": "EXACT"}


def cut(content: dict[str, Any]) -> None:
    arm = content["arms"]["on"]
    arm["evidence"]["cases"] = [case for case in arm["evidence"]["cases"] if case["output"] == case["argmax"]]
    arm["decision"] = asdict(decide(arm["evidence"]))


def widened(content: dict[str, Any]) -> None:
    for case in content["arms"]["on"]["evidence"]["cases"]:
        case["envelope"] = 1e9
    content["arms"]["on"]["decision"] = asdict(decide(content["arms"]["on"]["evidence"]))


def of_another_kind(content: dict[str, Any]) -> None:
    arm = content["arms"]["on"]
    arm["evidence"] |= {"kind": "occurrences", "cases": []}
    arm["decision"] = asdict(decide(arm["evidence"]))


def uncompared(content: dict[str, Any]) -> None:
    content["on_against_off"] = None


def in_agreement(content: dict[str, Any]) -> None:
    content["on_against_off"] |= {"flips": [], "decision": content["arms"]["off"]["decision"]}


def clean(content: dict[str, Any]) -> None:
    content["status"] = 0


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (relabelled, "on: the report says EXACT, its evidence says VIOLATED"),
        (cut, "on: its evidence does not count the"),
        (widened, "on: its evidence is judged by another envelope"),
        (of_another_kind, "on: its evidence is of the kind occurrences"),
        (uncompared, "on against off: there must be a comparison"),
        (in_agreement, "on against off: the report says EXACT, the two arms say VIOLATED"),
        (clean, "exit status: the report says 0, its verdicts say 1"),
    ],
)
def test_a_report_of_recorded_runs_that_does_not_hang_together_is_refused(report: Path, capsys, forge, said: str):
    forged(report, forge)
    assert main(["verify", str(report)]) == 1
    assert said in capsys.readouterr().out
