"""A decoder that was closed is gone with its last name: pools are as large as a device, and no collector has to run."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specqual import fixtures
from specqual.contract import Request, Rule, Setup
from specqual.decoder import Engine, make

TARGETS = ["dense", "hybrid", "window"]
DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def parts_of(engine: Engine) -> dict[str, weakref.ref[Any]]:
    found = {"engine": engine, "pages": engine._store.pages, "slots": engine._store.slots, "cache": engine._prefixes}
    return {name: weakref.ref(part) for name, part in found.items()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_a_closed_decoder_is_freed_at_once(target: str, ended: bool, device: str) -> None:
    draft, options = fixtures.path(f"nano/{target}-dflash2"), {"samples": 2, "device": device}
    engine = make(Setup(target=fixtures.path(f"nano/{target}"), draft=draft, rule=Rule.RATIO, options=options))
    for seed in range(2):
        engine.submit(
            Request(prompt=tuple((seed + i) % 90 for i in range(130)), max_tokens=6, seed=seed, ignore_eos=True)
        )
    for _ in range(12 if ended else 3):
        engine.step()
    assert engine._prefixes.idle_pages or not ended
    parts = parts_of(engine)
    engine.close()
    del engine
    assert not [name for name, part in parts.items() if part() is not None]
