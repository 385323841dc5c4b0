"""Decoders that end trials badly: they hang, crash and raise. No faults that a clause could see."""

import os
import time
from typing import Any

from specqual.contract import Decoder, Setup
from specqual.mutants.planting import planted
from specqual.reference import ReferenceDecoder


def hangs(setup: Setup) -> Decoder:
    def step(self: ReferenceDecoder) -> Any:
        time.sleep(600)

    return planted(setup, {(ReferenceDecoder, "step"): step})


def dies(setup: Setup) -> Decoder:
    def step(self: ReferenceDecoder) -> Any:
        os._exit(7)

    return planted(setup, {(ReferenceDecoder, "step"): step})


def raises(setup: Setup) -> Decoder:
    def step(self: ReferenceDecoder) -> Any:
        raise RuntimeError("the engine broke")

    return planted(setup, {(ReferenceDecoder, "step"): step})
