"""`specqual reference`: what it prints, and one clear line for bad input."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specqual import fixtures
from specqual.cli import main

DENSE, DFLASH2 = fixtures.path("nano/dense"), fixtures.path("nano/dense-dflash2")
TEXT = "def add(a, b):"


def reference(*options: str, target: Path = DENSE) -> int:
    return main(["reference", "--target", str(target), *options])


def as_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert reference(*options, "--json") == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_json_holds_the_new_tokens_and_what_every_round_did(capsys: pytest.CaptureFixture[str]):
    content = as_json(capsys, "--draft", str(DFLASH2), "--text", TEXT, "--max-tokens", "20")
    assert len(content["tokens"]) == 20
    assert content["text"] == "".join(chr(32 + token) for token in content["tokens"])
    assert [token for round in content["rounds"] for token in round["committed"]] == content["tokens"]
    anchor = ord(TEXT[-1]) - 32
    for round in content["rounds"]:
        assert round["anchor"] == anchor
        assert round["accepted"] == round["proposals"][: len(round["accepted"])]
        assert round["committed"][:-1] == round["accepted"]
        anchor = round["committed"][-1]
    assert (content["method"], content["rule"], content["finish_reason"]) == ("dflash2", "ratio", "length")
    assert content["acceptance_length"] == 19 / (len(content["rounds"]) - 1)


def test_tokens_are_the_same_with_and_without_a_drafter(capsys: pytest.CaptureFixture[str]):
    ask = ("--text", TEXT, "--max-tokens", "20")
    plain = as_json(capsys, *ask)
    assert as_json(capsys, *ask, "--draft", str(DFLASH2))["tokens"] == plain["tokens"]
    assert as_json(capsys, *ask, "--ngram", "2", "--draft-length", "3")["tokens"] == plain["tokens"]
    assert as_json(capsys, *ask, "--dtype", "float32")["tokens"] == plain["tokens"]
    ids = ",".join(str(ord(c) - 32) for c in TEXT)
    assert as_json(capsys, "--ids", ids, "--max-tokens", "20") == plain


def test_sampling_options_reach_the_request(capsys: pytest.CaptureFixture[str]):
    ask = ("--text", TEXT, "--max-tokens", "8")
    greedy = as_json(capsys, *ask)["tokens"]
    warm = as_json(capsys, *ask, "--temperature", "1.5", "--seed", "4", "--rule", "one-hot", "--draft", str(DFLASH2))
    assert warm["tokens"] != greedy
    assert warm["rule"] == "one-hot"
    narrow = ("--temperature", "1.5", "--top-k", "1", "--top-p", "0.5", "--min-p", "0.5")
    assert as_json(capsys, *ask, *narrow)["tokens"] == greedy
    penalised = as_json(
        capsys, *ask, "--repetition-penalty", "9", "--presence-penalty", "90", "--frequency-penalty", "1"
    )
    assert len(set(penalised["tokens"])) == 8
    stopped = as_json(capsys, *ask, "--stop-string", chr(32 + greedy[3]))
    assert stopped["tokens"] == greedy[: greedy.index(greedy[3]) + 1]
    assert stopped["finish_reason"] == "stop"


def test_several_samples_stand_side_by_side(capsys: pytest.CaptureFixture[str]):
    content = as_json(capsys, "--text", TEXT, "--max-tokens", "6", "--temperature", "1", "--n", "3")
    assert content["samples"][0]["tokens"] == content["tokens"]
    assert len({tuple(entry["tokens"]) for entry in content["samples"]}) == 3


def test_people_get_a_table_of_rounds_and_the_text(capsys: pytest.CaptureFixture[str]):
    assert reference("--text", TEXT, "--max-tokens", "12", "--draft", str(DFLASH2)) == 0
    printed = capsys.readouterr().out
    assert "dflash2 drafts, ratio rule" in printed
    assert "12 tokens in" in printed and "bonus included" in printed


def test_a_target_without_a_tokenizer_takes_and_prints_ids(capsys: pytest.CaptureFixture[str]):
    table = fixtures.path("table/chain")
    assert reference("--ids", "1,2", "--max-tokens", "3", target=table) == 0
    assert "tokens in" in capsys.readouterr().out
    assert reference("--text", "a", "--max-tokens", "3", target=table) == 2
    assert capsys.readouterr().err.startswith("specqual: error: text: needs a tokenizer.json")


def one_error(capsys: pytest.CaptureFixture[str], field: str, *options: str, target: Path = DENSE) -> None:
    try:
        status = reference(*options, target=target)
    except SystemExit as exit_:  # how argparse ends
        status = int(exit_.code or 0)
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.startswith(f"specqual: error: {field}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("prompt[2]: ", ["--ids", "1,2,96", "--max-tokens", "3"]),
        ("prompt[0]: ", ["--ids=-1", "--max-tokens", "3"]),
        ("prompt: ", ["--ids", "", "--max-tokens", "3"]),
        ("prompt: ", ["--text", "", "--max-tokens", "3"]),
        ("text: ", ["--text", "a\udcff", "--max-tokens", "3"]),  # how a byte that is no UTF-8 arrives
        ("prompt: ", ["--text", "a" * 512, "--max-tokens", "3"]),
        ("ids: ", ["--ids", "1,b", "--max-tokens", "3"]),
        ("max_tokens: ", ["--text", "a", "--max-tokens", "0"]),
        ("max_tokens: ", ["--text", "a", "--max-tokens", "-4"]),
        ("--max-tokens: ", ["--text", "a", "--max-tokens", "many"]),
        ("min_tokens: ", ["--text", "a", "--max-tokens", "3", "--min-tokens", "4"]),
        ("temperature: ", ["--text", "a", "--max-tokens", "3", "--temperature", "-0.1"]),
        ("temperature: ", ["--text", "a", "--max-tokens", "3", "--temperature", "nan"]),
        ("top_p: ", ["--text", "a", "--max-tokens", "3", "--top-p", "0"]),
        ("top_p: ", ["--text", "a", "--max-tokens", "3", "--top-p", "1.01"]),
        ("top_k: ", ["--text", "a", "--max-tokens", "3", "--top-k", "-1"]),
        ("n: ", ["--text", "a", "--max-tokens", "3", "--n", "0"]),
        ("seed: ", ["--text", "a", "--max-tokens", "3", "--seed", "-1"]),
        ("stop_strings[0]: ", ["--text", "a", "--max-tokens", "3", "--stop-string", ""]),
        ("ngram: ", ["--text", "a", "--max-tokens", "3", "--ngram", "0"]),
        ("draft_length: ", ["--text", "a", "--max-tokens", "3", "--draft", str(DFLASH2), "--draft-length", "9"]),
        ("--rule: ", ["--text", "a", "--max-tokens", "3", "--rule", "block"]),
        ("unrecognized arguments: --speed", ["--text", "a", "--max-tokens", "3", "--speed", "9"]),
        ("unrecognized arguments: --temp", ["--text", "a", "--max-tokens", "3", "--temp", "1"]),
        ("one of the arguments --text --ids", ["--max-tokens", "3"]),
        ("the following arguments are required: --max-tokens", ["--text", "a"]),
    ],
)
def test_a_bad_request_is_one_line_that_names_the_field(
    capsys: pytest.CaptureFixture[str], field: str, options: list[str]
):
    one_error(capsys, field, *options)


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        file = directory / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return edit


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        change(tensors)
        save_file(tensors, directory / "model.safetensors")

    return edit


def truncate(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("config.json: model_type: ", edit_config(model_type="gpt9")),
        ("config.json: mystery: ", edit_config(mystery=1)),
        (f"{NORM}: is missing", edit_tensors(lambda tensors: tensors.pop(NORM))),
        ("extra.weight: ", edit_tensors(lambda tensors: tensors.update({"extra.weight": torch.zeros(3)}))),
        (f"{NORM}: has shape", edit_tensors(lambda tensors: tensors.update({NORM: torch.zeros(3)}))),
        ("model.safetensors: ", truncate),
        ("model.safetensors: ", lambda directory: (directory / "model.safetensors").unlink()),
        ("config.json: ", lambda directory: (directory / "config.json").write_text("{")),
        ("config.json: no such file", lambda directory: (directory / "config.json").unlink()),
        ("tokenizer.json: ", lambda directory: (directory / "tokenizer.json").write_text("[]")),
    ],
)
def test_a_bad_checkpoint_is_one_line_that_names_the_part(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, field: str, damage: Callable[[Path], Any]
):
    broken = Path(shutil.copytree(DENSE, tmp_path / "broken"))
    damage(broken)
    one_error(capsys, field, "--text", "a", "--max-tokens", "3", target=broken)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_leaves_early_is_no_error(form: list[str]):
    command = [sys.executable, "-c", "from specqual.cli import main; raise SystemExit(main())", "reference"]
    process = subprocess.Popen(
        [*command, "--target", str(DENSE), "--text", TEXT, "--max-tokens", "3", *form],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() not in (0, 2)


def test_an_option_is_written_out_under_every_command(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    with pytest.raises(SystemExit) as ended:
        main(["fixtures", "table", "--ou", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "--out" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_drafter_of_another_target_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    other = Path(shutil.copytree(DFLASH2, tmp_path / "other"))
    edit_config(vocab_size=50, hidden_size=48)(other)
    one_error(capsys, "config.json: ", "--text", "a", "--max-tokens", "3", "--draft", str(other))
