"""Faults of the optimised decoder's recurrent and conv state (K19): the slot at a boundary, and the log behind it.

There are no snapshots for each token here, so "the wrong snapshot" is "the wrong number of logged tokens kept".
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specqual.decoder import target
from specqual.decoder.memory import Memory, Store
from specqual.decoder.replay import Replay, replay_of
from specqual.decoder.slots import Slots
from specqual.decoder.span import Span

from .mutant import planted_in
from .pairs import HYBRID2
from .planting import Place
from .rows import remembering, swap

sound_commit, sound_keep, sound_copy = Store.commit, Slots.keep, Slots.copy


def replaying(spans: Sequence[Span], layout: Sequence[object], kept: Callable[[Span], int]) -> Replay:
    """The loop of a pass that takes another number of logged tokens for kept."""
    sound = [span.memory.kept for span in spans]
    wrong = [kept(span) for span in spans]
    try:
        for span, count in zip(spans, wrong, strict=True):
            span.memory.kept = count
        return replay_of(spans, *layout)  # type: ignore[arg-type]
    finally:
        for span, count in zip(spans, sound, strict=True):
            span.memory.kept = count


@remembering
def m19a() -> dict[Place, object]:
    """The state behind all drafts is kept, rejected ones too. Shows after the first rejection."""

    def beyond(spans: Sequence[Span], *layout: object) -> Replay:
        return replay_of([replace(span, certain=len(span.new)) for span in spans], *layout)  # type: ignore[arg-type]

    def commit(self: Store, memory: Memory, length: int, kept: int) -> None:
        sound_commit(self, memory, length, 0)

    return {(target, "replay_of"): beyond, (Store, "commit"): commit}


@swap("commit", Store)
def m19b(self: Store, memory: Memory, length: int, kept: int) -> None:
    """One accepted token too few is kept in the state. Shows after the first acceptance."""
    sound_commit(self, memory, length, kept - (kept > 1))


@swap("replay_of", target)
def m19c(spans: Sequence[Span], *layout: object) -> Replay:
    """The state moves on by all accepted tokens, the convolution's history by one. Shows for the kernel's width."""
    sound, short = replay_of(spans, *layout), replaying(spans, layout, lambda span: min(span.memory.kept, 1))  # type: ignore[arg-type]
    first = len(short.slots) * short.tails.shape[1] + len(short.kept)  # of the new rows, which stand further back
    return replace(sound, taps=short.taps + (short.taps >= first) * (len(sound.kept) - len(short.kept)))


@swap("replay_of", target)
def m19d(spans: Sequence[Span], *layout: object) -> Replay:
    """A round without drafts goes on from the first token of the round before. Needs silence after an acceptance."""
    return replaying(spans, layout, lambda span: span.memory.kept if len(span.new) > 1 else min(span.memory.kept, 1))


@swap("replay_of", target)
def m19e(spans: Sequence[Span], *layout: object) -> Replay:
    """The checkpoint behind a prompt's last whole chunk is the state from before the pass. Shows in a warm start."""
    early = [span if span.mark is None else replace(span, mark=(span.start, span.mark[1])) for span in spans]
    return replay_of(early, *layout)  # type: ignore[arg-type]


@swap("copy", Slots)
def m19f(self: Slots, source: int, slot: int) -> None:
    """The state at a block edge is copied backward, over the checkpoint. Shows in a warm start."""
    sound_copy(self, slot, source)


@swap("replay_of", target)
def m19g(spans: Sequence[Span], *layout: object) -> Replay:
    """A pass that fills one prompt and verifies another's drafts takes no checkpoints. Shows in a warm start."""
    if any(span.judged > 1 for span in spans):
        spans = [replace(span, mark=None) for span in spans]
    return replay_of(spans, *layout)  # type: ignore[arg-type]


@swap("keep", Slots)
def m19h(self: Slots, layer: int, slots: Tensor, states: Tensor) -> None:
    """The state at a boundary is kept in bfloat16, and the log is replayed from there: off by rounding."""
    sound_keep(self, layer, slots, states.to(torch.bfloat16).to(states.dtype))


PLANTED = planted_in(
    "optimised",
    ("REC-1", HYBRID2, (m19a, m19b, m19c, m19h)),
    ("REC-2", HYBRID2, (m19d,)),
    ("RES-2", HYBRID2, (m19e, m19f, m19g)),
)
