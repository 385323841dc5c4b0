"""Long runs: ties are ties where bits are not claimed, and nothing else is; page sizes are told or inferred."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from specqual.conformance import scenes
from specqual.conformance.evidence import decide
from specqual.conformance.lab import Lab, Run
from specqual.conformance.longrun import held, rejected
from specqual.contract import Decoder, Greedy, Make, Setup, State
from specqual.decoder import Engine, make
from specqual.decoder.target import Transformer
from specqual.mutants.pairs import BF16, WINDOW2, Pair
from specqual.mutants.planting import planted
from specqual.mutants.registry import mutants

sound_logits, sound_inspect = Transformer._logits, Engine.inspect


def lab(factory: Make, pair: Pair) -> Lab:
    return Lab(Run("tests", factory, pair.setup))


def unlike_twins(nats: float, *, bitwise: bool = False) -> Make:
    """Decoders that are not the same bits: every second one has other logits, by up to so many nats."""
    numbers = count()

    def logits(self: Transformer, x: Tensor) -> tuple[Tensor]:
        (found,) = sound_logits(self, x)
        return (found + nats * torch.arange(found.shape[-1]).sin().to(found.dtype),)

    def factory(setup: Setup) -> Decoder:
        decoder: Any = planted(setup, {(Transformer, "_logits"): logits} if next(numbers) % 2 else {}, make)
        decoder.claims = replace(decoder.claims, greedy=Greedy(bitwise=bitwise))
        return decoder

    return factory


@pytest.mark.parametrize(
    ("factory", "verdict"),
    [
        (unlike_twins(0.12), "TIE-EXPLAINED"),
        (unlike_twins(3.0), "VIOLATED"),
        (unlike_twins(0.12, bitwise=True), "VIOLATED"),
        (unlike_twins(0.0, bitwise=True), "EXACT"),
    ],
    ids=["ties", "more than ties", "bits are claimed", "sound"],
)
def test_a_run_of_rejections_parts_from_the_plain_one_at_ties_only(factory: Make, verdict: str) -> None:
    about = lab(factory, BF16)
    found = [rejected(about, request) for request in scenes.requests(about, "d", [5, 6, 7, 8], 32)]
    cases, rejections, compared = zip(*found, strict=True)  # not every output comes near a tie
    decision = decide({"kind": "histories", "cases": list(cases), "guards": []})
    assert decision.verdict == verdict, decision.detail
    assert verdict == "VIOLATED" or min(rejections) >= 28
    assert all(compared) or verdict == "VIOLATED"


def silent_about_pages(factory: Make) -> Make:
    def inspect(self: Engine, request_id: int, sample: int = 0) -> State:
        return replace(sound_inspect(self, request_id, sample), page_size=None)

    return lambda setup: planted(setup, {(Engine, "inspect"): inspect}, factory)


@pytest.mark.parametrize("wrap", [lambda factory: factory, silent_about_pages], ids=["told", "inferred"])
def test_pages_are_counted_in_the_size_that_is_told_or_else_inferred(wrap: Callable[[Make], Make]) -> None:
    for factory, verdict in ((make, "EXACT"), (mutants()["M22c"].make, "VIOLATED")):
        about = lab(wrap(factory), WINDOW2)
        cases, passed = held(about, scenes.requests(about, "RES-3", [1], 128)[0])
        decision = decide({"kind": "values", "cases": cases, "guards": []})
        assert decision.verdict == verdict and passed > 0, decision.detail
        assert ("as inferred" in cases[-1]["what"]) == (wrap is silent_about_pages)
