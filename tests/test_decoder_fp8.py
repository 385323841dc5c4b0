"""FP8 caches: the pool holds codes of one byte, and reading them gives what rounding through the format gives."""

import json
import shutil
from pathlib import Path

import torch

from specqual import fixtures
from specqual.contract import Finished, Setup, State
from specqual.decoder import Engine, make
from specqual.decoder.formats import from_e4m3, to_e4m3

from .engines import UNEQUAL, alone, engine, greedy, said

LARGEST = 448.0


def states(decoder: Engine) -> list[State]:
    """Of every request that is in."""
    return [decoder.inspect(i) for i, rows in decoder._live.items() if rows[0].memory is not None]


def fp8(drafter: str | None = None) -> Engine:
    return engine("hybrid-nvfp4", drafter)


def test_codes_stand_for_what_rounding_gives() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 300
    for scale in (1.0, 0.75, 0.013):
        scaled = (x / torch.tensor(scale)).clamp(-LARGEST, LARGEST)
        expected = scaled.to(torch.float8_e4m3fn).float() * torch.tensor(scale)
        codes = to_e4m3(x, scale)
        assert codes.dtype is torch.uint8 and from_e4m3(codes, scale, torch.float32).equal(expected)
        assert to_e4m3(expected, scale).equal(codes)


def test_a_target_with_scales_keeps_one_byte_a_number_and_says_the_same_in_a_batch() -> None:
    decoder = fp8()
    assert decoder.claims.kv_format == "fp8" and decoder.claims.greedy.bitwise
    streams = decoder._store.pages.streams.values()
    assert {stream.element for stream in streams} == {torch.uint8}
    assert decoder._store.pages.page_bytes == max(2 * 16 * stream.kv_heads * stream.head_dim for stream in streams)
    assert said(decoder, UNEQUAL) == alone(fp8(), UNEQUAL)
    decoder._store.pages._data[1:] = 255  # NaN
    assert said(decoder, UNEQUAL) == alone(fp8(), UNEQUAL)


def test_a_cached_row_is_a_number_that_the_format_has() -> None:
    decoder = fp8()
    request_id = decoder.submit(greedy([8, 6, 7, 5] * 9, 9))
    while not any(isinstance(event, Finished) for event in decoder.step()):
        state = decoder.inspect(request_id)
        for stream in decoder._store.pages.streams.values():
            assert stream.scales is not None
            for side, scale in zip(("key", "value"), stream.scales, strict=True):
                rows = state.tensors[f"{stream.name}.{side}"]
                assert len(rows) == state.length and from_e4m3(to_e4m3(rows, scale), scale, rows.dtype).equal(rows)


def test_narrow_layers_share_the_pages_that_a_wide_one_needs_and_say_what_they_said_alone(tmp_path: Path) -> None:
    """A dense target with codes of one byte beside a drafter of float32: four of its layers fit into one page."""
    target = tmp_path / "target"
    shutil.copytree(fixtures.path("nano/dense"), target)
    config = json.loads((target / "config.json").read_text())
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {}}
    config["quantization_config"] = mixed | {"kv_cache_scheme": scheme}
    (target / "config.json").write_text(json.dumps(config))

    plain = make(Setup(target=target))
    both = make(Setup(target=target, draft=fixtures.path("nano/dense-dflash2")))
    pages, twice = both._store.pages, set[int]()
    narrow = [stream for stream in pages.streams.values() if stream.scales is not None]
    tables = pages.tables()
    assert len({id(tables[stream.name]) for stream in narrow}) == -(-len(narrow) // 4) < len(narrow)
    assert len(plain._store.pages.own) == len(narrow)

    def look(tick: int) -> None:
        twice.update(len(state.pages) - len(set(state.pages)) for state in states(both))

    assert said(both, UNEQUAL, look) == said(plain, UNEQUAL)
    assert twice == {0}  # no page is told twice
    both.close()
    assert both.resources()["pages"] == pages.count
