"""The reference with a drafter, the reference without one, and Transformers' greedy output: equal, token for token.

`python -m tests.equality --target fixtures/small/hybrid --draft fixtures/small/hybrid-dflash2 --prompts 200` prints a
summary; the exit status is 1 if a token differs. Without `--draft` the drafts are looked up in the prompt (`--ngram`).
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from specqual.contract import Decoder, Request, Setup, Tokens
from specqual.reference import make


@dataclass(frozen=True, slots=True)
class Job:
    target: Path
    draft: Path | None
    ngram: int
    prompt: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the three decoders emitted for one prompt."""

    off: tuple[int, ...]
    on: tuple[int, ...]
    transformers: tuple[int, ...]
    rounds: int

    @property
    def equal(self) -> bool:
        return self.off == self.on == self.transformers


def output(decoder: Decoder, request: Request) -> tuple[int, tuple[int, ...]]:
    """Run one request to its end: (request id, all ids it emitted)."""
    request_id, ids = decoder.submit(request), []
    while events := decoder.step():
        for event in events:
            if isinstance(event, Tokens):
                ids.extend(event.ids)
    return request_id, tuple(ids)


@lru_cache(maxsize=2)
def decoders(target: Path, draft: Path | None, ngram: int) -> tuple[Decoder, Any, Any]:
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    drafted = Setup(target=target, draft=draft) if draft else Setup(target=target, options={"ngram": ngram})
    return make(Setup(target=target)), make(drafted), model


@torch.inference_mode()
def compare(job: Job) -> Outcome:
    """Greedy output of one prompt by all three; the end-of-sequence id is ignored so that lengths agree."""
    off, on, model = decoders(job.target, job.draft, job.ngram)
    request = Request(prompt=job.prompt, max_tokens=job.max_tokens, ignore_eos=True)
    on_id, drafted = output(on, request)
    prompt = torch.tensor([job.prompt])
    theirs = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=job.max_tokens,
        min_new_tokens=0,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )[0, len(job.prompt) :]
    return Outcome(output(off, request)[1], drafted, tuple(theirs.tolist()), len(on.rounds(on_id)))


def heldout(file: Path, length: int) -> list[tuple[int, ...]]:
    """Prompts of one length from windows of held-out text: the first piece of every window, then the second ones."""
    windows = [window for kind in json.loads(file.read_text())["windows"].values() for window in kind]
    starts = range(0, max(map(len, windows)) - length + 1, length)
    return [tuple(window[at : at + length]) for at in starts for window in windows if len(window) >= at + length]


def written(file: Path, target: Path) -> list[tuple[int, ...]]:
    """Prompts written one per line, as the target's own tokenizer sees them."""
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    lines = file.read_text().splitlines()
    return [tuple(tokenizer.encode(line.replace("\\n", "\n"), add_special_tokens=False).ids) for line in lines]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument(
        "--ngram", type=int, default=4, help="drafts looked up in the prompt, where there is no --draft"
    )
    parser.add_argument("--prompts-file", type=Path, default=Path("fixtures/small/heldout.json"))
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--prompt-length", type=int, default=112)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.prompts_file.suffix == ".json":
        prompts = heldout(options.prompts_file, options.prompt_length)
    else:
        prompts = written(options.prompts_file, options.target)
    chosen = prompts[: options.prompts]
    jobs = [Job(options.target, options.draft, options.ngram, prompt, options.max_tokens) for prompt in chosen]
    differing = tokens = rounds = 0
    with ProcessPoolExecutor(options.workers) as pool:
        for done, outcome in enumerate(pool.map(compare, jobs), 1):
            tokens, rounds = tokens + len(outcome.off), rounds + outcome.rounds
            if not outcome.equal:
                differing += 1
                print(f"prompt {done - 1} differs: {outcome}")
            if done % 20 == 0:
                print(f"{done} of {len(jobs)} prompts, {differing} differ", file=sys.stderr, flush=True)
    print(
        f"{len(jobs)} prompts, {tokens} tokens, {rounds} rounds with the drafter: "
        f"{differing} prompts differ between reference off, reference on and Transformers"
    )
    return 1 if differing or not jobs else 0


if __name__ == "__main__":
    raise SystemExit(main())
