"""Real acceptance and speed on the trained small fixtures, the target alone beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from specqual import fixtures
from specqual.contract import Rule, Setup

from ..arms import specqual_runner
from ..prompts import prompts_of
from ..traffic import traffic
from .clock import Clock


def measure(
    names: Sequence[str], device: str, clock: Clock, batches: Sequence[int], prompt: int, tokens: int
) -> Iterator[dict[str, Any]]:
    """Greedy decoding of held-out code by every target with its DFlash 2 drafter; seconds of whole runs."""
    return (cell_of(name, device, clock, batch, prompt, tokens) for name in names for batch in batches)


def cell_of(name: str, device: str, clock: Clock, batch: int, prompt: int, tokens: int) -> dict[str, Any]:
    options = {"device": device, "prefixes": 0, "samples": batch}
    target, draft = fixtures.path(name), fixtures.path(f"{name}-dflash2")
    setups = {
        "target only": Setup(target=target, rule=Rule.NONE, dtype="bfloat16", options=options),
        "DFlash 2": Setup(target=target, draft=draft, dtype="bfloat16", options=options),
    }
    prompts = prompts_of(name, batch, prompt)
    runners = {arm: specqual_runner(setup) for arm, setup in setups.items()}
    seconds = clock.compare({arm: lambda run=r.run: run(prompts, tokens) for arm, r in runners.items()}, 1)
    told = {arm: runner.run(prompts, tokens) for arm, runner in runners.items()}
    outputs = [ran.outputs for ran in told.values()]
    return {
        "name": name,
        "batch": batch,
        "prompt": prompt,
        "tokens": tokens,
        "seconds": seconds,
        "same output": sum(a == b for a, b in zip(*outputs, strict=True)),
        "traffic": {arm: asdict(traffic(ran, setups[arm])) for arm, ran in told.items()},
    }
