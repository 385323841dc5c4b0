"""A batch of samples at one context, and what is timed on it: a step of the target, a whole round, and a round's parts.

Work is done in place: every run begins at the same lengths, with the same number of accepted tokens behind it, and
nothing is committed, so a run moves the same bytes whenever it comes. Drafts, selector, convolutions, the target's pass
and judging all run; what judging says is not acted upon.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from specqual.contract import Proposal, Sampling
from specqual.decoder.gpu.carry import Array, brought, carried, together
from specqual.decoder.gpu.judging import certain, firsts, judged
from specqual.decoder.memory import Memory, Store
from specqual.decoder.propose import Ask
from specqual.decoder.span import Span

from .rig import Rig, features, place

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """What was committed in the round before, accepted drafts and one token more, waits in logs and in `grown`."""

    rig: Rig
    store: Store
    memories: tuple[Memory, ...]
    alone: tuple[Memory, ...]  # the same as a target without drafts leaves them: one token in the log
    context: int
    grown: tuple[Tensor, ...]  # features of what was committed, [accepted + 1, taps * H] each
    tokens: tuple[tuple[int, ...], ...]  # of each sample, the anchor last; only anchors are looked at

    @property
    def batch(self) -> int:
        return len(self.memories)


@contextmanager
def scene_of(rig: Rig, store: Store, batch: int, context: int, accepted: int) -> Iterator[Scene]:
    """Let samples in, and give everything back to the pools at the end; they must be empty and large enough."""
    memories = tuple(place(rig, store, context, accepted + 1) for _ in range(batch))
    grown = tuple(features(rig, accepted + 1) for _ in memories)
    tokens = tuple((*[0] * context, 1 + place) for place in range(batch))
    alone = tuple(replace(memory, kept=1) for memory in memories)
    try:
        yield Scene(rig, store, memories, alone, context, grown, tokens)
    finally:
        for memory in memories:
            store.give(memory)


def step(scene: Scene) -> list[Array]:
    """The target alone: one token of each sample."""
    return passed(scene, scene.alone, [Proposal.certain(())] * scene.batch)


def ingest(scene: Scene) -> None:
    """The drafter takes in what the last round committed."""
    starts = [scene.context - len(rows) for rows in scene.grown]
    scene.rig.drafter.ingest(scene.memories, starts, scene.grown, scene.store)


def draft(scene: Scene) -> list[Proposal]:
    """The block pass and the walk."""
    most = scene.rig.drafter.draft_length
    asks = [
        Ask(i, 0, tokens, 1, most, GREEDY, memory, lambda slot: 0.0)
        for i, (tokens, memory) in enumerate(zip(scene.tokens, scene.memories, strict=True))
    ]
    return scene.rig.drafter.propose(asks, scene.store)


@torch.inference_mode()
def passed(scene: Scene, memories: Sequence[Memory], proposals: Sequence[Proposal]) -> list[Array]:
    """The target over each anchor and its drafts, and what is accepted, on the host."""
    spans = [
        Span(tokens + proposal.tokens, scene.context, memory, 0, 1 + len(proposal.tokens))
        for tokens, proposal, memory in zip(scene.tokens, proposals, memories, strict=True)
    ]
    for span in spans:
        scene.store.extend(span.memory, scene.rig.target.streams, span.end)
    found = scene.rig.target.forward(spans, scene.store)
    tokens = np.array([proposal.tokens or (0,) for proposal in proposals], np.int32)  # all alike in length
    first, drafts = carried([firsts([len(p.tokens) for p in proposals]), tokens], scene.rig.device)
    return brought(judged(together(found.logits), first, certain(drafts), None))


def whole(scene: Scene) -> list[Array]:
    """One round."""
    ingest(scene)
    return passed(scene, scene.memories, draft(scene))
