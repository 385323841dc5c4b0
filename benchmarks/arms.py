"""Arms: the engines that are compared, each built from a frozen description inside a process of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from specqual import fixtures
from specqual.contract import Finished, Request, Round, Setup, Tokens
from specqual.decoder import make

Prompts = Sequence[tuple[int, ...]]
DRAFTERS = {
    "dflash": "DFlash",
    "dflash2": "DFlash 2",
    "selector": "selector",
    "conv": "convolution",
    "markov": "Markov",
}
LOOKED_UP = 3  # longest suffix of the n-gram arm
OFF = {  # the target alone without what invariance costs: label and options of the decoder
    "untiled": ("target only, untiled", {"invariant": 0}),
    "sdpa": ("target only, SDPA", {"attention": "sdpa"}),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One engine on one checkpoint. `name` is unique within a target; `most` is its largest batch."""

    name: str
    label: str
    engine: str  # a key of BUILDERS
    setup: Setup
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run gave: outputs and rounds of each request, in order, and the passes of the target over the batch."""

    outputs: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[Round, ...], ...]
    passes: int


@dataclass(frozen=True, slots=True)
class Runner:
    """`run` is timed, and gives whatever `observe` turns into a Ran afterwards, off the clock."""

    run: Callable[[Prompts, int], Any]
    observe: Callable[[Prompts, int, Any], Ran] = field(default=lambda prompts, tokens, result: result)


def arms_of(name: str, dtype: str, samples: int) -> tuple[Arm, ...]:
    """The arms on a target fixture such as `small/hybrid`, in the order in which each trial runs them.

    `samples` is the largest batch. Each run of the decoder is cold: it keeps no prefixes.
    """
    target = fixtures.path(name)
    cold = {"prefixes": 0, "samples": samples}

    def own(arm: str, label: str, draft: Path | None = None, **options: Any) -> Arm:
        return Arm(arm, label, "specqual", Setup(target=target, draft=draft, dtype=dtype, options=cold | options))

    drafters = {key: f"{name}-{key}" for key in DRAFTERS if f"{name}-{key}" in fixtures.names()}
    arms = [own("target-only", "target only")]
    arms += [own(key, label, **options) for key, (label, options) in OFF.items()]
    arms.append(own("ngram", "n-gram", ngram=LOOKED_UP))
    arms += [own(key, DRAFTERS[key], fixtures.path(draft)) for key, draft in drafters.items()]
    arms.append(Arm("transformers", "Transformers, generate", "transformers", Setup(target=target, dtype=dtype)))
    if "dflash2" in drafters:
        setup = Setup(target=target, draft=fixtures.path(drafters["dflash2"]), dtype=dtype)
        arms.append(Arm("dflash-generate", "dflash 0.1.0, DFlash 2", "dflash", setup, most=1))
    return tuple(arms)


def specqual_runner(setup: Setup) -> Runner:
    """The optimised decoder: all requests at once, stepped to their ends."""
    decoder = make(setup)

    def run(prompts: Prompts, tokens: int) -> Ran:
        ids = [decoder.submit(Request(prompt=prompt, max_tokens=tokens, ignore_eos=True)) for prompt in prompts]
        outputs: dict[int, tuple[int, ...]] = dict.fromkeys(ids, ())
        running, passes = set(ids), 0
        while running:
            passes += 1  # without a commit lag, every tick is one pass of the target
            for event in decoder.step():
                if isinstance(event, Tokens):
                    outputs[event.request_id] += event.ids
                elif isinstance(event, Finished):
                    running.remove(event.request_id)
                else:
                    raise RuntimeError(event.error)
        return Ran(tuple(outputs.values()), tuple(decoder.rounds(i) for i in ids), passes)

    return Runner(run)


def transformers_runner(setup: Setup) -> Runner:
    """Transformers' own batched `generate`; the prompts are equally long, so nothing is padded."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(setup.target, dtype=getattr(torch, setup.dtype or "float32")).eval()

    def run(prompts: Prompts, tokens: int) -> torch.Tensor:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )

    def observe(prompts: Prompts, tokens: int, found: torch.Tensor) -> Ran:
        start = len(prompts[0]) - 1
        rows = found.tolist()
        rounds = tuple(
            tuple(Round(0, 0, at, row[at], (), (), 0, (row[at + 1],)) for at in range(start, start + tokens))
            for row in rows
        )
        return Ran(tuple(tuple(row[start + 1 :]) for row in rows), rounds, tokens)

    return Runner(run, observe)


def dflash_runner(setup: Setup) -> Runner:
    """`dflash_generate` as its package ships it; rounds come from the same run repeated under the adapter's eyes."""
    from dflash.model import DFlash2DraftModel, dflash_generate
    from transformers import AutoModelForCausalLM

    from specqual.adapters.dflash import rounds_of, watch

    dtype = getattr(torch, setup.dtype or "float32")
    target = AutoModelForCausalLM.from_pretrained(setup.target, dtype=dtype).eval()
    drafter = DFlash2DraftModel.from_pretrained(setup.draft, dtype=dtype).eval()

    def run(prompts: Prompts, tokens: int) -> list[int]:
        (prompt,) = prompts
        with torch.inference_mode():
            return dflash_generate(drafter, target, torch.tensor([prompt]), tokens, None)[0].tolist()

    def observe(prompts: Prompts, tokens: int, found: list[int]) -> Ran:
        with watch(target) as passes:
            run(prompts, tokens)
        rounds = tuple(rounds_of(passes, 0, 0, found))
        return Ran((tuple(found[len(prompts[0]) :]),), (rounds,), len(rounds))

    return Runner(run, observe)


BUILDERS: dict[str, Callable[[Setup], Runner]] = {
    "specqual": specqual_runner,
    "transformers": transformers_runner,
    "dflash": dflash_runner,
}
