"""Drafters in narrow formats, quantised when they are loaded or stored so: other drafts, the same greedy output."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch

from specqual import fixtures, reference
from specqual.conformance.quantise import quantised_draft
from specqual.contract import DraftFormat, Round, Rule, Setup
from specqual.contract.checkpoint import open_draft, open_target, read_draft, read_target
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Format
from specqual.contract.requantised import in_nvfp4
from specqual.contract.schema import draft_linears, draft_schema
from specqual.decoder import Engine, make
from specqual.decoder.gpu.budget import Pair, weights
from specqual.decoder.quantise import to_nvfp4
from specqual.mutants.pairs import Pair as Names
from specqual.reference.nvfp4 import quantise_nvfp4

from .draft_checkpoints import METHODS, configuration, tensors, write
from .engines import UNEQUAL, Said, said
from .qualification import results

TARGET, DRAFT = fixtures.path("nano/hybrid"), fixtures.path("nano/hybrid-dflash2")
NARROW = [kind for kind in Format if kind is not Format.DENSE]


def decoder(draft: Path | None, draft_format: str = "stored", **options: object) -> Engine:
    rule = Rule.RATIO if draft is not None else Rule.NONE
    return make(Setup(target=TARGET, draft=draft, rule=rule, options={"draft_format": draft_format, **options}))


def run(engine: Engine) -> tuple[list[Said], list[Round]]:
    """What it says to four requests at once, and every round of theirs."""
    output = said(engine, UNEQUAL)
    return output, [one for request_id in range(len(UNEQUAL)) for one in engine.rounds(request_id)]


@contextmanager
def stored(kind: Format | None) -> Iterator[Path]:
    with nullcontext(DRAFT) if kind is None else quantised_draft(DRAFT, kind) as path:
        yield path


def test_a_drafter_quantised_at_load_drafts_as_one_that_was_stored_so_and_output_stays() -> None:
    with stored(Format.NVFP4) as path:
        there, drafts = run(decoder(path))
    output, rounds = run(decoder(DRAFT, "nvfp4"))
    assert (output, rounds) == (there, drafts)
    plain, exact = run(decoder(DRAFT))
    assert output == plain == run(decoder(None))[0]
    assert [one.proposals for one in rounds] != [one.proposals for one in exact]


def test_the_claims_say_how_a_drafter_is_held() -> None:
    assert decoder(DRAFT, "nvfp4").claims.draft_format is DraftFormat.NVFP4
    for other in (decoder(DRAFT), decoder(None, "nvfp4"), decoder(None, "nvfp4", ngram=2)):
        assert other.claims.draft_format is DraftFormat.STORED
    setup = Setup(target=TARGET, draft=DRAFT, options={"draft_format": "nvfp4"})
    assert reference.make(setup).claims.draft_format is DraftFormat.NVFP4
    for build in (make, reference.make):
        with pytest.raises(ValueError, match="^draft_format: must be stored or nvfp4, got 'fp4'"):
            build(Setup(target=TARGET, draft=DRAFT, options={"draft_format": "fp4"}))


def test_the_reference_drafts_alike_by_a_rule_of_its_own() -> None:
    pair = Names("nano/hybrid", "nano/hybrid-dflash2", options=(("draft_format", "nvfp4"),))
    found = results("optimised", pair, ["DRF-1", "DRF-2"])
    assert {line["verdict"] for line in found.values()} <= {"EXACT", "HOLDS"}, found


@pytest.mark.parametrize("method", METHODS)
def test_exactly_the_modules_that_the_plan_counts_are_held_narrow(tmp_path: Path, method: str) -> None:
    config = configuration(["full_attention", "sliding_attention"], False, **METHODS[method])
    path = write(tmp_path, config, tensors(config))
    plain = open_draft(path)
    narrow = in_nvfp4(plain, to_nvfp4)
    held = 0
    for name in draft_schema(narrow.config, narrow.quantisation):
        if narrow.quantisation.format_of(name.rpartition(".")[0]) is Format.NVFP4 and "input_scale" not in name:
            held += narrow.read(name).nbytes
    target, quantisation = read_target(TARGET)
    counted = {item.name: item.bytes for item in weights(Pair(target, quantisation, *read_draft(path)), True)}
    assert counted["drafter: nvfp4 modules"] == held
    for name in set(plain.tensors) - {f"{module}.weight" for module in draft_linears(plain.config)}:
        assert torch.equal(narrow.read(name), plain.read(name))
    both = (in_nvfp4(plain, rule).read("fc.weight") for rule in (to_nvfp4, quantise_nvfp4))
    assert torch.equal(*both)


@pytest.mark.parametrize("kind", NARROW)
def test_a_drafter_that_is_stored_narrow_stays_as_it_is(kind: Format) -> None:
    with stored(kind) as path:
        as_stored = open_draft(path, open_target(TARGET).config)
        assert all(in_nvfp4(as_stored, to_nvfp4).read(name).equal(as_stored.read(name)) for name in as_stored.tensors)
        assert run(decoder(path, "nvfp4")) == run(decoder(path))


def test_a_module_without_whole_blocks_is_named(tmp_path: Path) -> None:
    config = configuration(["full_attention"], False) | {"intermediate_size": 40}
    path = write(tmp_path, config, tensors(config))
    with pytest.raises(CheckpointError, match="layers.0.mlp.down_proj.weight: has 40 inputs, and NVFP4 takes"):
        decoder(path, "nvfp4")
