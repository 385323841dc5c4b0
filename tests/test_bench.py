"""The benchmarks run end to end, and what their report says follows from what was measured."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.arms import Ran
from benchmarks.report import main, noise
from benchmarks.results import GOALS, Cell, Spread, gather, goals
from benchmarks.traffic import traffic
from specqual import fixtures
from specqual.contract import Request, Round, Setup
from specqual.contract.checkpoint import open_target
from specqual.decoder import make

ROOT = Path(__file__).resolve().parent.parent
ARMS = ("target-only", "dflash2", "transformers", "dflash-generate")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest run that has every kind of arm, more than one batch size and more than one trial."""
    path = tmp_path_factory.mktemp("bench") / "results.json"
    sizes = "--models nano/dense --batches 2,1 --prompt 20 --tokens 6 --trials 2".split()
    command = [sys.executable, "-m", "pytest", "benchmarks", "-q", "-p", "no:cacheprovider", *sizes]
    command += ["--arms", ",".join(ARMS), "--benchmark-json", str(path)]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # of no xdist worker
    ended = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return path


def test_every_arm_runs_once_before_any_runs_again(results: Path) -> None:
    infos = [entry["extra_info"] for entry in json.loads(results.read_text())["benchmarks"]]
    order = [(info["trial"], info["batch"], info["arm"]) for info in infos]
    batches = {1: ARMS, 2: ARMS[:-1]}
    assert order == [(trial, batch, arm) for trial in (0, 1) for batch in (1, 2) for arm in batches[batch]]


def test_the_exact_arms_give_the_output_of_the_target_alone_and_every_arm_tells_its_costs(results: Path) -> None:
    cells = gather(json.loads(results.read_text()))
    for (model, batch, _), cell in cells.items():
        assert cell.same(cells[model, batch, "target-only"]) == batch
        assert cell.info["tokens"] == 6 * batch
        assert 1 <= cell.info["acceptance"] <= 8
        assert cell.info["rows"] > 0 < cell.info["kv_bytes"]
        assert 0 < cell.info["loaded_bytes"] <= cell.info["peak_bytes"]
        assert cell.info["cpu_seconds"] > 0
    assert cells["nano/dense", 2, "target-only"].info["forwards"] == 6
    assert cells["nano/dense", 1, "dflash-generate"].info["forwards"] <= 6


def test_the_page_stands_alone_and_names_every_goal(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "page.html"
    monkeypatch.setattr(sys, "argv", ["report", str(results), str(page)])
    main()
    text, printed = page.read_text(), capsys.readouterr().out
    assert not re.search(r"https?:|src=|<link|<script|@import|url\(", text)
    assert text.count("<svg") == 2
    for goal in GOALS:
        assert goal.title in printed
    assert "not measured" in text  # nothing ran at batch 8


def cell(speeds: dict[int, float], outputs: tuple[str, ...] = ()) -> Cell:
    return Cell("m", 1, "a", "A", speeds, speeds, {"outputs": outputs})


def test_ratios_are_taken_within_a_trial() -> None:
    """The machine slows down threefold after the first trial; the ratio of the medians would be 1.25."""
    fast, slow = cell({0: 30.0, 1: 10.0, 2: 10.0}), cell({0: 20.0, 1: 20.0 / 3, 2: 8.0})
    assert fast.over(slow) == Spread(1.5, 1.25, 1.5)
    assert fast.speed == Spread(10.0, 10.0, 30.0)


def test_a_goal_is_met_at_its_bound_unless_it_asks_for_more_and_says_by_how_much_it_is_missed() -> None:
    above, twice, _ = GOALS
    assert above.verdict(Spread(1.0, 1.0, 1.0)) == "missed by 0.00"
    assert above.verdict(Spread(1.01, 0.9, 1.1)) == "met"
    assert twice.verdict(Spread(2.0, 1.5, 2.5)) == "met"
    assert twice.verdict(Spread(1.65, 1.5, 2.5)) == "missed by 0.35"
    alone = goals({("m", 1, "dflash2"): cell({0: 1.0})})
    assert [found.verdict for found in alone] == ["not measured"] * 3


def test_a_busy_machine_is_named_in_the_report() -> None:
    runs = [{"extra_info": {"cpu_seconds": 1.0}, "stats": {"median": seconds}} for seconds in (1.0, 1.01, 3.0)]
    assert noise({"benchmarks": runs}) == ""
    assert "busy" in noise({"benchmarks": runs[1:]})


def test_bytes_of_a_round_are_what_its_layers_must_see_and_keep() -> None:
    """nano/window slides (24 tokens) on most of its layers; its drafter, too. A prompt of 40, then one round."""
    setup = Setup(target=fixtures.path("nano/window"), draft=fixtures.path("nano/window-dflash2"), dtype="bfloat16")
    first = Round(0, 0, 39, 5, (), (), 0, (6,))
    second = Round(0, 0, 40, 6, (7, 8, 9), (None,) * 3, 1, (7, 3))
    found = traffic(Ran(((6, 7, 3),), ((first, second),), 2), setup)
    config = open_target(setup.target).config
    sliding, full = (sum(str(kind).startswith(name) for kind in config.layer_types) for name in ("sliding", "full"))
    draft = json.loads((fixtures.path("nano/window-dflash2") / "config.json").read_text())
    row = 2 * config.kv_heads * config.head_dim
    expected = full * row * (40 + 4 + 4) + sliding * row * (config.window - 1 + 4 + 4)
    draft_row = 2 * draft["num_key_value_heads"] * draft["head_dim"]
    expected += len(draft["layer_types"]) * draft_row * (min(40, draft["sliding_window"] - 1) + 2)
    assert (found.acceptance, found.rows, found.state_bytes) == (2, 4, 0)
    assert found.kv_bytes == 2 * expected


def test_recurrent_state_counts_once_read_and_once_written() -> None:
    """What a live sample shows of it through the contract is the measure."""
    setup = Setup(target=fixtures.path("nano/hybrid"))
    decoder = make(setup)
    request = decoder.submit(Request(prompt=(1, 2, 3, 4, 5), max_tokens=3, ignore_eos=True))
    decoder.step()
    tensors = decoder.inspect(request).tensors
    kept = [tensor for name, tensor in tensors.items() if name.endswith((".state", ".conv"))]
    assert all(tensor.dtype is torch.float32 for tensor in kept)
    plain = Round(0, 0, 5, 1, (), (), 0, (1,))
    found = traffic(Ran(((1, 1),), ((plain, plain),), 2), setup)
    assert found.state_bytes == 2 * sum(tensor.numel() * 4 for tensor in kept)
