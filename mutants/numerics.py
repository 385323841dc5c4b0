"""Faults of the optimised decoder that its dtype might seem to excuse: it claims bfloat16, and is further off."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from specqual.contract import Greedy, Setup
from specqual.decoder import Engine, make
from specqual.decoder import build as build_module
from specqual.decoder.memory import Store
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer

from .mutant import planted_in
from .pairs import DFLASH2
from .planting import planted

NOISE = 1e-2  # of each logit; one rounding to bfloat16 is 2^-9 of it
LOUD = 1.5e-2  # the same, of engines that promise no bits: 1e-2 is no more than some of them may round by
sound_forward, sound_load = Transformer.forward, build_module.load_target


def _noisy(logits: torch.Tensor, seed: int, most: float = NOISE) -> torch.Tensor:
    noise = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed))
    return logits * (1 + most * (2 * noise - 1))


def m31c(setup: Setup) -> Engine:
    """The logits of spans of several rows are off by up to 1e-2 of themselves; those of single rows are sound."""

    def forward(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        found = sound_forward(self, spans, store, rows)
        pairs = zip(spans, found.logits, strict=True)
        return found._replace(logits=tuple(_noisy(x, span.end) if span.judged > 1 else x for span, x in pairs))

    return planted(setup, {(Transformer, "forward"): forward}, make)


def noisy(setup: Setup) -> Engine:
    """All logits are off by up to 1.5e-2 of themselves, and nothing is promised bit for bit."""

    def forward(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        found = sound_forward(self, spans, store, rows)
        return found._replace(logits=tuple(_noisy(x, s.end, LOUD) for s, x in zip(spans, found.logits, strict=True)))

    decoder = planted(setup, {(Transformer, "forward"): forward}, make)
    decoder.claims = replace(decoder.claims, greedy=Greedy(bitwise=False))
    return decoder


def early_taps(setup: Setup) -> Engine:
    """The drafter's features are tapped one layer too early."""

    def load(checkpoint: object, dtype: torch.dtype, taps: tuple[int, ...], *others: object) -> Transformer:
        return sound_load(checkpoint, dtype, tuple(max(0, tap - 1) for tap in taps), *others)

    return planted(setup, {(build_module, "load_target"): load}, make)


PLANTED = planted_in("optimised", ("GE-1", DFLASH2, (m31c,)), ("GE-7", DFLASH2, (m31c,)))
