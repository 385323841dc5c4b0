"""FP8 caches: the pool holds codes of one byte, and reading them gives what rounding through the format gives."""

import torch

from specqual.contract import Finished
from specqual.decoder import Engine
from specqual.decoder.formats import from_e4m3, to_e4m3

from .engines import UNEQUAL, alone, engine, greedy, said

LARGEST = 448.0


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
