"""Whatever bytes stand in a checkpoint, opening it gives the documented error or a checkpoint, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specqual.contract.checkpoint import open_draft, open_target
from specqual.contract.config import parse_target
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import parse_quantisation

from .checkpoints import DFLASH2, HYBRID, write_dflash2, write_hybrid

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.just(9**999) | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
fuzz = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hybrid(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dflash2(tmp_path_factory.mktemp("draft"))


@fuzz
@given(key=st.sampled_from([*HYBRID, *HYBRID["rope_parameters"], "quantization_config", "text_config"]), value=JSON)
def test_any_value_under_any_key_of_a_target_config(key: str, value: Any) -> None:
    config = {**HYBRID, "rope_parameters": dict(HYBRID["rope_parameters"])}
    (config["rope_parameters"] if key in config["rope_parameters"] else config)[key] = value
    try:
        parse_target(config)
        parse_quantisation(config, None)
    except CheckpointError as error:
        assert error.field


@fuzz
@given(key=st.sampled_from([*DFLASH2, *DFLASH2["dflash_config"]]), value=JSON)
def test_any_value_under_any_key_of_a_drafter_config(key: str, value: Any) -> None:
    config = {**DFLASH2, "dflash_config": dict(DFLASH2["dflash_config"])}
    (config["dflash_config"] if key in config["dflash_config"] else config)[key] = value
    try:
        parse_draft(config)
    except CheckpointError as error:
        assert error.field


@fuzz
@given(content=JSON)
def test_any_quantisation_config(content: Any) -> None:
    for method in ("modelopt", "compressed-tensors"):
        inner = {**content, "quant_method": method} if isinstance(content, dict) else content
        try:
            parse_quantisation({"quantization_config": inner}, None)
        except CheckpointError as error:
            assert error.field


@fuzz
@given(content=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_as_config_json(draft: Path, content: bytes) -> None:
    kept = (draft / "config.json").read_bytes()
    try:
        (draft / "config.json").write_bytes(content)
        with pytest.raises(CheckpointError):
            open_draft(draft)
    finally:
        (draft / "config.json").write_bytes(kept)


@fuzz
@given(data=st.data())
def test_any_bytes_changed_in_a_safetensors_header(target: Path, data: st.DataObject) -> None:
    path = target / "model.safetensors"
    kept = path.read_bytes()
    header = 8 + int.from_bytes(kept[:8], "little")
    changed = bytearray(kept)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.sampled_from([len(kept), len(kept), header, header + 5, 7, 0]))
    try:
        path.write_bytes(bytes(changed[:length]))
        try:
            checkpoint = open_target(target)
            for name in checkpoint.tensors:
                checkpoint.read(name)
        except CheckpointError as error:
            assert error.field
    finally:
        path.write_bytes(kept)


HEADER_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F8_E4M3", "X9", ""]) | SCALARS,
        "shape": st.lists(st.integers(-1, 2**62), max_size=4) | SCALARS,
        "data_offsets": st.lists(st.integers(-1, 2**62), max_size=3) | SCALARS,
    },
)


@fuzz
@given(header=st.dictionaries(st.sampled_from(["lm_head.weight", "__metadata__", "x"]), HEADER_VALUES | JSON))
def test_any_safetensors_header(target: Path, header: dict[str, Any]) -> None:
    path = target / "model.safetensors"
    kept = path.read_bytes()
    content = json.dumps(header).encode()
    try:
        path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(256))
        with pytest.raises(CheckpointError):
            open_target(target)
    finally:
        path.write_bytes(kept)
