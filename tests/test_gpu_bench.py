"""The benchmark at full size runs end to end at nano size, and what it says follows from configurations and trials."""

import json
import re
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from .interpreter import DEVICE  # isort: split

from benchmarks.gpu import __main__ as entry
from benchmarks.gpu import attention, peer
from benchmarks.gpu.clock import Clock, trials_of
from benchmarks.gpu.derived import Goal, speeds
from benchmarks.gpu.groups import GROUPS, group_of
from benchmarks.gpu.moved import Cell, draft_bytes, round_bytes, step_bytes
from benchmarks.gpu.rig import Rig, drafter_of, place, pools, target_of
from benchmarks.gpu.scene import scene_of
from benchmarks.gpu.session import Session
from benchmarks.gpu.synthetic import synthetic_draft, synthetic_target
from benchmarks.results import Spread
from specqual import fixtures
from specqual.contract.schema import draft_linears, target_linears
from specqual.decoder import gpu
from specqual.decoder.span import Span

from .twins import run_definitions

GEOMETRIES = ("geometry/qwen3.8-27b", "geometry/qwen3-4b")
HOST = torch.device("cpu")
SIZES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All parts at nano size, on the definitions of the kernels: what is tried is what stands around them."""
    if DEVICE == "cuda":
        pytest.skip("a dry run is one in the interpreter")
    folder = tmp_path_factory.mktemp("gpu")
    with pytest.MonkeyPatch.context() as patch:
        run_definitions(patch)
        patch.setattr(sys, "argv", ["gpu", "--dry", "--out", str(folder)])
        assert entry.main() == 0
    return folder


def test_every_part_runs_and_the_page_stands_alone(
    dry: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--page", str(dry)])
    assert entry.main() == 0
    page, printed = (dry / "performance.html").read_text(), capsys.readouterr().out
    assert not re.search(r"https?:|src=|<link|<script|@import|url\(", page)
    for title in (
        "Target steps and rounds",
        "Attention of one layer by back end",
        "Memory, GiB",
        "Transformers on the same weights",
        "Trained small fixtures",
    ):
        assert f"### {title}" in printed
    assert "failed" not in printed and "not measured" not in printed


def test_every_trial_is_kept_and_speculation_changes_no_greedy_token(dry: Path) -> None:
    found = {path.stem: json.loads(path.read_text())["found"] for path in dry.glob("*.json")}
    for cell in found["speed"]["cells"]:
        assert all(len(seconds) == 2 for seconds in cell["seconds"].values())  # one trial, early and late
    assert found["small"][0]["same output"] == found["small"][0]["batch"]
    assert {cell["name"] for cell in found["attention"]} == {"target, a step", "target, a round", "drafter, a block"}
    assert all(cell["seconds"].keys() == {"own", "sdpa"} for cell in found["attention"])


def test_a_part_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    def broken(keep: Callable[[Any], None]) -> None:
        keep([1])
        written = json.loads((tmp_path / "bad.json").read_text())
        assert (written["found"], written["error"]) == ([1], "had no end")  # what stands there if it is killed now
        raise ValueError("weights: none")

    assert entry.run("bad", broken, {}, tmp_path) == 1
    written = json.loads((tmp_path / "bad.json").read_text())
    assert written["error"] == "ValueError: weights: none" and written["found"] == [1]


def test_a_part_of_many_cells_keeps_each_as_soon_as_it_is_there() -> None:
    kept = list[int]()
    cells = ({"batch": batch} for batch in (1, 8))
    assert entry.gathered(cells, lambda found: kept.append(len(found))) == [{"batch": 1}, {"batch": 8}]
    assert kept == [1, 2]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_bytes_of_modules_are_those_of_the_tensors_that_are_made(name: str) -> None:
    session = Session.of(name, HOST, 1, 1)
    pair = session.pair
    for made, linears, bytes_of in (
        (
            synthetic_target(session.target_path, HOST),
            {**target_linears(pair.target), "lm_head": ()}
            | ({} if not pair.target.tied else {"model.embed_tokens": ()}),
            {k: v for k, v in step_bytes(pair, Cell(1, 1, 1, 1)).items() if "target:" in k},
        ),
        (
            synthetic_draft(session.draft_path, pair.target, HOST, nvfp4=True),
            draft_linears(pair.draft),
            {k: v for k, v in draft_bytes(pair, Cell(1, 1, 1, 1), True).items() if k.endswith("modules")},
        ),
    ):
        stored = [t for name, t in made.tensors.items() if name.rpartition(".")[0] in linears]
        assert sum(bytes_of.values()) == sum(prod(t.shape) * SIZES[t.dtype] for t in stored)


def test_a_step_of_the_27b_target_moves_what_the_published_formats_weigh() -> None:
    """9.63 GB of MLPs, 7.22 GB of FP8 projections, 0.715 GB of head; and two times 144 MiB of states."""
    pair = Session.of(GEOMETRIES[0], HOST, 1, 1).pair
    found = step_bytes(pair, Cell(1, 128, 1, 1))
    weights = sum(size for name, size in found.items() if name.startswith("target:"))
    assert weights == pytest.approx(9.63e9 + 1.68e9 + 5.54e9 + 0.715e9, rel=0.005)
    assert found["states and logs"] == pytest.approx(2 * 144 * 2**20, rel=0.02)
    assert found["keys and values"] == 32 * 2**10 * (128 + 2)
    assert sum(round_bytes(pair, Cell(1, 128, 8, 4), True).values()) / sum(found.values()) < 1.25


@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_parameter_of_the_transformers_model_has_a_source_of_its_shape(name: str) -> None:
    checkpoint = synthetic_target(fixtures.path(name), HOST)
    for parameter, source in peer.sources(peer.empty(fixtures.path(name), torch.device("meta")), checkpoint):
        stored = checkpoint.tensors[source]
        packed = 2 if stored.dtype == "U8" else 1
        assert prod(stored.shape) * packed == parameter.numel()


def test_transformers_says_what_the_kernels_say_on_the_same_synthetic_weights() -> None:
    """Logits of a prompt, to what bfloat16 leaves of them; a weight in a wrong place leaves nothing."""
    where, ids = fixtures.path("nano/hybrid"), (3, 9, 4, 7)
    session = Session.of("nano/hybrid", torch.device(DEVICE), 1, 16)
    rig = session.rig(False)
    store = session.store(rig)
    memory = store.take(store.most_pages(16, 16))
    store.extend(memory, rig.target.streams, len(ids))
    mine = rig.target.forward([Span(ids, 0, memory, len(ids), len(ids))], store).logits[0]
    with torch.inference_mode():
        theirs = peer.model_of(where, rig.device)(torch.tensor([ids], device=rig.device)).logits[0].float()
    assert torch.corrcoef(torch.stack([mine.float().flatten(), theirs.flatten()]))[0, 1] > 0.99


def test_attention_side_by_side_is_the_same_attention() -> None:
    session = Session.of("nano/hybrid", torch.device(DEVICE), 2, 33)
    rig = session.rig(True)
    with scene_of(rig, session.store(rig), 2, 33, 0) as scene:
        for one in attention.passes(rig):
            torch.manual_seed(3)
            found = {name: body() for name, body in attention.bodies(scene, one)}
            assert len(found["own"]) == len(one.streams)
            for mine, theirs in zip(found["own"], found["sdpa"], strict=True):
                assert mine.shape == (2 * one.rows, one.heads, one.streams[0].head_dim)
                torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0.02)


def test_arms_take_turns_and_ratios_stay_within_a_trial() -> None:
    order = list[str]()
    clock = Clock(HOST, trials=2, warm=0)
    found = clock.compare({name: lambda name=name: order.append(name) for name in "AB"}, 1)
    assert order == list("ABBAABBA")
    assert [len(seconds) for seconds in found.values()] == [4, 4]
    assert trials_of([1.0, 3.0, 4.0, 6.0]) == [2.0, 5.0]


def test_fractions_ratio_and_tokens_per_second_follow_from_the_trials() -> None:
    """Copies at 10 bytes a second; the machine slows down threefold in the second of three trials."""
    seconds = {"graphs step": [2.0, 2, 6, 6, 2, 2], "graphs round": [2.5, 2.5, 7.5, 7.5, 2.5, 2.5]}
    cell = {"batch": 3, "context": 1, "seconds": seconds, "step_bytes": {"a": 10, "b": 4}, "round_bytes": {"a": 20}}
    (speed,) = speeds({"copy": [9, 10], "copy_after": [10, 11], "cells": [cell]})
    assert (speed.step.median, speed.ratio) == (2.0, Spread(1.25, 1.25, 1.25))
    assert speed.step_fraction.median == pytest.approx(0.7) and speed.round_fraction.median == pytest.approx(0.8)
    assert speed.tokens_per_second(5) == 6.0 and speed.tokens_without == 1.5


def test_a_goal_is_met_at_its_bound() -> None:
    assert Goal("", 0.7, Spread(0.7, 0, 1), least=True).verdict == "met"
    assert Goal("", 0.7, Spread(0.6, 0, 1), least=True).verdict == "missed by 0.1"
    assert Goal("", 1.25, Spread(1.25, 0, 2)).verdict == "met"
    assert Goal("", 1.25, None).verdict == "not measured"


def test_every_kernel_belongs_to_a_group() -> None:
    for path in Path(gpu.__file__).parent.glob("*.py"):
        for name in re.findall(r"^def (\w+_kernel)\(", path.read_text(), re.MULTILINE):
            assert group_of(name) in GROUPS, name
    assert group_of("block_convolution_kernel") == "selector and block convolution"
    assert group_of("void at::native::vectorized_elementwise") == "other"


def test_a_sample_that_is_placed_owns_what_its_window_shows_and_gives_it_all_back() -> None:
    where = Path(fixtures.path("nano/window"))
    target = target_of(where, Path(fixtures.path("nano/window-dflash2")), torch.device(DEVICE))
    rig = Rig(target, drafter_of(Path(fixtures.path("nano/window-dflash2")), target, nvfp4=False), False)
    store = pools(rig, 2, 100)
    memory = place(rig, store, 100, 3)
    for stream in rig.streams:
        table = memory.tables[stream.name]
        assert len(table) == -(-(100 + rig.span) // 16)
        assert all(table[stream.first(100) // 16 :]) and not any(table[: stream.first(100) // 16])
    store.give(memory)
    assert store.pages.free == store.pages.count


def test_without_a_gpu_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path)])
    monkeypatch.setattr(torch.cuda, "init", lambda: (_ for _ in ()).throw(RuntimeError("no NVIDIA driver")))
    assert entry.main() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
