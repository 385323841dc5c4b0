"""What rounds cost, counted from their trace and the shapes of the checkpoints alone, alike for every engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from specqual.contract import Round, Setup
from specqual.contract.checkpoint import open_draft, open_target
from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.draft import DraftConfig

from .arms import Ran


@dataclass(frozen=True, slots=True)
class Traffic:
    """Means over the rounds behind the prompt; a round is one pass of the target over the whole batch.

    `acceptance` is tokens per sample and round, with the bonus. `rows` go through the target. `kv_bytes` are keys and
    values read and written, of the target and of the drafter's context; `state_bytes` recurrent and conv state.
    """

    acceptance: float
    rows: float
    kv_bytes: float
    state_bytes: float


def traffic(ran: Ran, setup: Setup) -> Traffic:
    """Count a run; all zero where there is no round behind the prompt."""
    target = open_target(setup.target).config
    draft = None if setup.draft is None else open_draft(setup.draft, target).config
    size = getattr(torch, setup.dtype or "float32").itemsize
    later = [r for rounds in ran.rounds for r in rounds[1:]]
    passes = ran.passes - max(rounds[0].target_forwards for rounds in ran.rounds)
    if not later:
        return Traffic(0.0, 0.0, 0.0, 0.0)
    return Traffic(
        sum(len(r.committed) for r in later) / len(later),
        sum(map(rows, later)) / passes,
        sum(kv_rows(r, target, draft) for r in later) * size / passes,
        sum(state_bytes(target, size) for _ in later) / passes,
    )


def rows(r: Round) -> int:
    """The anchor and its drafts."""
    return 1 + len(r.proposals)


def kv_rows(r: Round, target: TargetConfig, draft: DraftConfig | None) -> int:
    """Numbers (not bytes) of keys and values that a round of one sample must read and write.

    An attention layer of the target reads what its rows see, the new ones included, and writes the new ones. One of the
    drafter reads the context in front of the anchor, if anything is drafted, and writes a row per committed token. What
    an engine reads beyond that (padding, a page's rest, copies) is its own.
    """
    total = 0
    for window in windows(target.layer_types, target.window):
        total += 2 * target.kv_heads * target.head_dim * (visible(r.start, window) + 2 * rows(r))
    for window in windows(draft.layer_types, draft.window) if draft is not None else ():
        read = visible(r.start, window) if r.proposals else 0
        total += 2 * draft.kv_heads * draft.head_dim * (read + len(r.committed))
    return total


def windows(types: Sequence[LayerType], window: int | None) -> Iterator[int | None]:
    """The window of each attention layer."""
    return (window if kind is LayerType.SLIDING else None for kind in types if kind is not LayerType.LINEAR)


def visible(length: int, window: int | None) -> int:
    """How many of `length` cached rows the next one sees."""
    return length if window is None else min(length, window - 1)


def state_bytes(target: TargetConfig, size: int) -> int:
    """Bytes of float32 state and of conv tail that a round of one sample reads once and writes once."""
    net, layers = target.delta_net, target.layer_types.count(LayerType.LINEAR)
    if net is None:
        return 0
    state = net.value_heads * net.key_dim * net.value_dim * 4
    conv = (net.kernel - 1) * net.channels * size
    return 2 * layers * (state + conv)
