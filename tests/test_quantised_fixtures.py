"""Fixtures with NVFP4 and FP8 weights and an FP8 cache, derived on the spot from dense ones."""

import json
from math import log2
from pathlib import Path

import pytest
import torch

from specqual import fixtures
from specqual.contract import Rule, Setup
from specqual.contract.checkpoint import open_target
from specqual.contract.quantisation import Format
from specqual.contract.schema import target_linears
from specqual.decoder import make
from specqual.fixtures.quantised import WINDOWS, main, power, quantise
from specqual.mutants.pairs import Pair
from specqual.reference.target import load_target

from .engines import greedy, said
from .qualification import results

pytest.importorskip("transformers", reason="it calibrates")
NANO, SMALL = fixtures.path("nano/hybrid"), fixtures.ROOT / "small"
CLAUSES = ["GE-1", "RWD-1", "NUM-1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of random tokens, for a target that has no text of its own."""
    path = tmp_path_factory.mktemp("text") / "windows.json"
    ids = torch.randint(1, 94, (8, 40), generator=torch.Generator().manual_seed(0)).tolist()
    path.write_text(json.dumps({"windows": dict.fromkeys(WINDOWS, ids)}))
    return path


@pytest.fixture(scope="module")
def derived(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantise(NANO, tmp_path_factory.mktemp("derived"), text)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """small/hybrid, as the profile `device` runs it."""
    return quantise(SMALL / "hybrid", tmp_path_factory.mktemp("small"), SMALL / "heldout.json")


def test_mlps_are_nvfp4_large_projections_fp8_and_the_rest_is_as_it_was(derived: Path) -> None:
    opened, plain = open_target(derived), open_target(NANO)
    kinds = {name: opened.quantisation.format_of(name) for name in target_linears(opened.config)}
    assert set(kinds.values()) == {Format.NVFP4, Format.FP8, Format.DENSE}
    assert all((kind is Format.NVFP4) == (".mlp." in name) for name, kind in kinds.items())
    assert opened.quantisation.kv_scales and (derived / "tokenizer.json").exists()
    kept = [name for name in plain.tensors if kinds.get(name.rpartition(".")[0], Format.DENSE) is Format.DENSE]
    assert kept and all(torch.equal(opened.read(name), plain.read(name)) for name in kept)


def test_the_same_bytes_come_out_again(derived: Path, text: Path, tmp_path: Path) -> None:
    again = quantise(NANO, tmp_path, text)
    names = sorted(path.name for path in again.iterdir())
    assert names == sorted(path.name for path in derived.iterdir())
    assert all((again / name).read_bytes() == (derived / name).read_bytes() for name in names)


def test_scales_of_the_cache_are_powers_of_two_that_hold_what_text_shows(derived: Path, text: Path) -> None:
    opened, target = open_target(derived), load_target(NANO)
    scales = {name: float(opened.read(name)) for name in opened.tensors if name.endswith(("k_scale", "v_scale"))}
    assert scales and all(log2(scale).is_integer() for scale in scales.values())
    seen = target.forward(json.loads(text.read_text())["windows"]["code"][0]).tensors
    for name, scale in scales.items():
        side = "key" if name.endswith("k_scale") else "value"
        largest = float(seen[f"target.{name.split('.')[2]}.{side}"].abs().max())
        assert 448 * scale / 8 < largest <= 448 * scale
    assert [power(x) / 448 for x in (448.0, 448.1, 0.4375)] == [1.0, 2.0, 2.0**-10]


def test_the_command_names_what_is_wrong(derived: Path, text: Path, capsys, monkeypatch) -> None:
    for target, out, words in (
        (NANO, derived.parent, "is there already"),
        (derived, derived.parent, "is quantised already"),
        (NANO, derived.parent / "other", "heldout.json: no such file"),
    ):
        monkeypatch.setattr("sys.argv", ["quantised", "--target", str(target), "--out", str(out)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2 and words in capsys.readouterr().err


def test_the_decoder_is_exact_on_a_trained_target_with_narrow_weights_and_an_fp8_cache(small: Path) -> None:
    found = results("optimised", Pair(str(small), "small/hybrid-dflash2"), CLAUSES)
    assert {line["verdict"] for line in found.values()} <= {"EXACT", "HOLDS"}, found


def test_the_drafter_of_the_dense_target_still_drafts_well(small: Path) -> None:
    assert length(small) > 2.4


def length(target: Path, requests: int = 6) -> float:
    """Tokens per round with the bonus, greedy, behind held-out code; without each request's first round and last."""
    windows = json.loads((SMALL / "heldout.json").read_text())["windows"]["code"][:requests]
    engine = make(Setup(target=target, draft=SMALL / "hybrid-dflash2", rule=Rule.RATIO))
    said(engine, [greedy(window[:128], 96) for window in windows])
    rounds = [one for request_id in range(requests) for one in engine.rounds(request_id)[1:-1]]
    return sum(len(one.committed) for one in rounds) / len(rounds)
