"""The `dflash` package behind the contract: DFlash and DFlash 2 drafters on any target that Transformers loads.

`Setup.draft` None runs the same loop at block size one, which never asks a drafter. Rounds are observed where tokens
cross the package's own borders: the ids that each target pass is given, and the arguments of its rejection step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import dflash.model as engine
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from specqual.contract import (
    Claims,
    CompactLaw,
    Method,
    Request,
    Round,
    Rule,
    Scored,
    SeedContract,
    Setup,
    Unsupported,
)
from specqual.contract.checkpoint import open_draft, open_target

from .inprocess import GREEDY, InProcess, draft_length, limits_of, load, precision, score, take_options

HONOURED = frozenset("temperature top_k top_p seed n ignore_eos stop_ids".split())
CLASSES = {Method.DFLASH: engine.DFlashDraftModel, Method.DFLASH2: engine.DFlash2DraftModel}


@dataclass(slots=True)
class Seen:
    """One pass of the target: the absolute index and ids of its input, drafts accepted, and the drafts' laws."""

    start: int
    ids: list[int]
    accepted: int
    q: list[CompactLaw] = field(default_factory=list)


@contextmanager
def watch(target: nn.Module) -> Iterator[list[Seen]]:
    """Collect what passes through the target and the rejection step; nothing is changed."""
    passes: list[Seen] = []
    reject = engine._rejection_sample

    def after_pass(_: nn.Module, given: tuple[Tensor, ...], named: dict[str, Any], output: Any) -> None:
        ids = given[0][0].tolist()
        best = output.logits[0].argmax(-1).tolist()  # of the last row alone in the first pass, which drafts nothing
        matches = [draft == choice for draft, choice in zip(ids[1:], best, strict=False)]
        passes.append(Seen(named["position_ids"][0, 0].item(), ids, [*matches, False].index(False)))

    def after_rejection(drafts: Tensor, p: Tensor, q: Tensor, ids: Tensor | None = None) -> tuple[int, Tensor]:
        accepted, token = reject(drafts, p, q, ids)
        passes[-1].accepted = accepted
        columns = ids[0] if ids is not None else torch.arange(q.shape[-1]).expand_as(q[0])
        for row, names in zip(q[0], columns, strict=True):
            kept = row.nonzero()[:, 0]
            passes[-1].q.append(CompactLaw(tuple(names[kept].tolist()), tuple(row[kept].tolist())))
        return accepted, token

    hook = target.register_forward_hook(after_pass, with_kwargs=True)
    engine._rejection_sample = after_rejection
    try:
        yield passes
    finally:
        hook.remove()
        engine._rejection_sample = reject


def rounds_of(passes: list[Seen], request_id: int, sample: int, tokens: list[int]) -> list[Round]:
    """Turn observed passes into rounds; `tokens` are prompt and output, whose lengths the next pass's start tells."""
    prompt = len(passes[0].ids)
    anchors = [prompt - 1, *(seen.start for seen in passes[1:]), len(tokens) - 1]
    rounds = [Round(request_id, sample, prompt - 1, tokens[prompt - 1], (), (), 0, (tokens[prompt],))]
    for seen, end in zip(passes[1:], anchors[2:], strict=True):
        drafts = tuple(seen.ids[1:])
        q = tuple(seen.q) or (None,) * len(drafts)
        committed = tuple(tokens[seen.start + 1 : end + 1])
        rounds.append(Round(request_id, sample, seen.start, seen.ids[0], drafts, q, seen.accepted, committed))
    return rounds


class DFlashDecoder(InProcess):
    """`dflash_generate`, one request at a time."""

    def __init__(self, claims: Claims, target: nn.Module, drafter: Any) -> None:
        super().__init__(claims)
        self._target, self._drafter = target, drafter
        self._rounds: dict[int, list[Round]] = {}

    def generate(self, request_id: int, request: Request, sample: int, stops: tuple[int, ...]) -> list[int]:
        sampling = request.sampling
        with watch(self._target) as passes:
            output = engine.dflash_generate(
                self._drafter,
                self._target,
                torch.tensor([request.prompt]),
                request.max_tokens,
                list(stops) or None,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                block_size=self.claims.limits.max_draft + 1,
            )
        tokens = output[0].tolist()
        self._rounds.setdefault(request_id, []).extend(rounds_of(passes, request_id, sample, tokens))
        return tokens[len(request.prompt) :]

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        if request_id not in range(self._next):
            raise KeyError(request_id)
        return tuple(self._rounds.get(request_id, ()))

    def score(self, prompt: tuple[int, ...], output: tuple[int, ...]) -> Scored:
        return score(self._target, prompt, output)


def make(setup: Setup) -> DFlashDecoder:
    """Build the decoder; Unsupported if the package has no class for the kind of drafter."""
    take_options(setup, {})
    dtype, checkpoint = precision(setup), open_target(setup.target)
    target = load(AutoModelForCausalLM, setup.target, dtype, checkpoint.left_out)
    method, drafts = Method.NONE, 0
    drafter: Any = SimpleNamespace(block_size=1, mask_token_id=0, config=target.config)
    if setup.draft is not None:
        config = open_draft(setup.draft, checkpoint.config).config
        method, drafts = config.method, draft_length(setup, config.draft_length)
        if method not in CLASSES:
            raise Unsupported(f"dflash {version('dflash')} has no class for a {method} drafter")
        drafter = load(CLASSES[method], setup.draft, dtype)
    plain = method is Method.NONE
    claims = Claims(
        engine="dflash",
        version=f"{version('dflash')} (transformers {version('transformers')})",
        rule=Rule.NONE if plain else Rule.RATIO,
        method=method,
        greedy=GREEDY,
        sampling=HONOURED,
        seed=SeedContract.ALWAYS if plain else SeedContract.EQUAL_DRAFT_LENGTHS,
        limits=limits_of(checkpoint, drafts),
        dtype=dtype,
        attention=target.config._attn_implementation,
        threads=torch.get_num_threads(),
    )
    return DFlashDecoder(claims, target, drafter)
