"""Judging a whole given sequence in one teacher-forced pass, with the weights streamed from the file.

No more than one decoded layer, or one piece of the head, is held at a time; the arithmetic is run_layer's of target.py.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint, open_target
from specqual.contract.config import TargetConfig
from specqual.contract.decoder import Scored
from specqual.contract.request import InvalidRequest

from .forward import Target
from .norm import rms_norm
from .rope import Rope, rope
from .table import is_table, load_table
from .target import gather, run_layer
from .weights import Numerics, project, read_embedding, read_head, read_layer

ENTRIES = 8192  # vocabulary entries whose rows of the head are decoded at a time
ROWS = 512  # scored tokens whose logits over them are held at a time

Pair = tuple[Sequence[int], Sequence[int]]  # prompt, output
Piece = tuple[slice, Tensor, int]  # of the N scored tokens, their logits [rows, C], the first of the C ids
Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, slots=True)
class _Tally:
    """What the vocabulary seen so far says about N laws; every tensor is [N] and filled in place."""

    tokens: Tensor
    mass: Tensor  # log of the sum of exp(logit)
    chosen: Tensor  # logit of the token
    best: Tensor
    argmax: Tensor  # the lowest id among the best
    runner_up: Tensor


def _tally(tokens: Tensor) -> _Tally:
    mass, chosen, best, runner_up = torch.full((4, len(tokens)), -torch.inf, dtype=torch.float64, device=tokens.device)
    return _Tally(tokens, mass, chosen, best, torch.zeros_like(tokens), runner_up)


def _add(tally: _Tally, rows: slice, logits: Tensor, first: int) -> None:
    """Take in logits [rows, C] of the ids first .. first + C - 1; ids must come in ascending order."""
    logits = logits.double()
    if not bool((logits < torch.inf).all()):  # a regret of NaN is larger than nothing: it would pass every comparison
        raise ValueError("logits: the target's are NaN or infinite here, so no token can be judged by them")
    best, argmax = logits.max(-1).values, logits.argmax(-1)  # argmax: the first of several
    others = logits.scatter(-1, argmax[:, None], -torch.inf).max(-1).values
    known = tally.best[rows].clone()
    tally.mass[rows] = torch.logaddexp(tally.mass[rows], logits.logsumexp(-1))
    tally.best[rows] = torch.maximum(known, best)
    tally.argmax[rows] = torch.where(best > known, argmax + first, tally.argmax[rows])
    tally.runner_up[rows] = torch.stack([tally.runner_up[rows], others, torch.minimum(known, best)]).amax(0)
    place = tally.tokens[rows] - first
    chosen = logits.gather(-1, place.clamp(0, logits.shape[1] - 1)[:, None]).squeeze(1)
    tally.chosen[rows] = torch.where((place >= 0) & (place < logits.shape[1]), chosen, tally.chosen[rows])


def _scored(tally: _Tally, rows: slice) -> Scored:
    def logprob(logits: Tensor) -> tuple[float, ...]:
        return tuple((logits[rows] - tally.mass[rows]).tolist())

    argmax = tuple(tally.argmax[rows].tolist())
    return Scored(logprob(tally.chosen), logprob(tally.best), argmax, logprob(tally.runner_up))


def _check(prompt: Sequence[int], output: Sequence[int], vocab_size: int, max_context: int) -> None:
    if not prompt:
        raise InvalidRequest("prompt", "must hold at least one token")
    for name, ids in (("prompt", prompt), ("output", output)):
        for place, token in enumerate(ids):
            if not 0 <= token < vocab_size:
                raise InvalidRequest(f"{name}[{place}]", f"must be between 0 and {vocab_size - 1}, got {token}")
    if len(prompt) + len(output) > max_context:
        raise InvalidRequest("output", f"ends beyond the context of {max_context} tokens")


def _blocks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS))


def _inputs(pair: Pair) -> list[int]:
    return [*pair[0], *pair[1][:-1]]  # nothing follows the last token


def _scored_rows(pair: Pair) -> slice:
    return slice(len(pair[0]) - 1, len(pair[0]) - 1 + len(pair[1]))


def _advance(
    streams: list[Tensor], checkpoint: Checkpoint[TargetConfig], index: int, numerics: Numerics, turn: Rope
) -> list[Tensor]:
    layer, config = read_layer(checkpoint, index, numerics), checkpoint.config  # the layer is dropped on return
    return [run_layer(x, layer, config, Rope(turn.cos[: len(x)], turn.sin[: len(x)]))[0] for x in streams]


def _streamed(
    checkpoint: Checkpoint[TargetConfig], pairs: Sequence[Pair], numerics: Numerics, progress: Progress
) -> Iterator[Piece]:
    config = checkpoint.config
    steps = config.layers + -(-config.vocab_size // ENTRIES)
    embedding = read_embedding(checkpoint)
    streams = [gather(embedding, _inputs(pair), numerics) for pair in pairs]
    turn = rope(range(max(map(len, streams))), config.rotary_dim, config.rope_theta, numerics.device)
    for index in range(config.layers):
        streams = _advance(streams, checkpoint, index, numerics, turn)
        progress(index + 1, steps)
    scored = torch.cat([x[_scored_rows(pair)] for x, pair in zip(streams, pairs, strict=True)])  # [N, H]
    gain = checkpoint.read(f"{config.prefix}norm.weight").to(numerics.device).to(numerics.wide)
    scored = rms_norm(scored, gain, config.eps, plus_one=config.norm_plus_one)
    for done, first in enumerate(range(0, config.vocab_size, ENTRIES), config.layers + 1):
        head = read_head(checkpoint, numerics, slice(first, first + ENTRIES))
        for rows in _blocks(len(scored)):
            yield rows, project(scored[rows], head), first
        del head  # before the next one is read
        progress(done, steps)


def _loaded(target: Target, pairs: Sequence[Pair], device: torch.device | str, progress: Progress) -> Iterator[Piece]:
    start = 0
    for done, pair in enumerate(pairs, 1):
        logits = target.forward(_inputs(pair)).logits[_scored_rows(pair)].to(device)
        yield slice(start, start + len(logits)), logits, 0
        start += len(logits)
        progress(done, len(pairs))


@torch.no_grad()
def score_many(
    target: Target | Path | str,
    pairs: Sequence[Pair],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    quantise_activations: bool = False,
    progress: Progress | None = None,
) -> list[Scored]:
    """Judge several (prompt, output) pairs, each output token under its own prefix, reading the weights only once.

    A directory is streamed layer by layer in `dtype` on `device`; logits are reduced in float64. A loaded target is
    used as it is, in its own dtype. `progress` is told (steps done, steps in all). InvalidRequest names an id outside
    the vocabulary, an empty prompt or a pair longer than the context; CheckpointError as load_target; ValueError says
    that the target's logits are no numbers.
    """
    report = progress or (lambda done, steps: None)
    if isinstance(target, Path | str) and is_table(target):
        target = load_table(target)
    if isinstance(target, Path | str):
        checkpoint = open_target(target)
        vocab_size, max_context = checkpoint.config.vocab_size, checkpoint.config.max_context
        pieces = _streamed(checkpoint, pairs, Numerics(dtype, device, quantise_activations), report)
    else:
        vocab_size, max_context = target.vocab_size, target.max_context
        pieces = _loaded(target, pairs, device, report)
    for prompt, output in pairs:
        _check(prompt, output, vocab_size, max_context)
    if not pairs:
        return []
    tally = _tally(torch.tensor([token for _, output in pairs for token in output], dtype=torch.long, device=device))
    for rows, logits, first in pieces:
        _add(tally, rows, logits, first)
    ends = list(accumulate(len(output) for _, output in pairs))
    return [_scored(tally, slice(end - len(output), end)) for end, (_, output) in zip(ends, pairs, strict=True)]


def score(
    target: Target | Path | str,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    quantise_activations: bool = False,
    progress: Progress | None = None,
) -> Scored:
    """Judge one output after its prompt, as score_many does several."""
    pair = (prompt, output)
    return score_many(
        target, [pair], dtype=dtype, device=device, quantise_activations=quantise_activations, progress=progress
    )[0]
