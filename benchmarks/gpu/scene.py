"""A batch of samples at one context, and what is timed on it: a step of the target, a whole round, and a round's parts.

Work is done in place: every run begins at the same lengths, with the same number of accepted tokens behind it, and
nothing is committed, so a run moves the same bytes whenever it comes. Drafts, selector, convolutions, the target's pass
and judging all run; what judging says is not acted upon.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specqual.contract import Proposal, Sampling
from specqual.decoder.memory import Memory, Store
from specqual.decoder.propose import Ask
from specqual.decoder.span import Pass, Span

from .rig import Rig, features, place

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """`accepted` drafts, and so `accepted` + 1 tokens, were committed in the round before."""

    rig: Rig
    store: Store
    memories: tuple[Memory, ...]
    context: int
    accepted: int
    grown: tuple[Tensor, ...]  # features of what was committed, [accepted + 1, taps * H] each

    @property
    def batch(self) -> int:
        return len(self.memories)

    def tokens(self) -> list[tuple[int, ...]]:
        """Of each sample, the anchor last; only anchors are looked at."""
        anchors = ((7 * place + 1) % self.rig.target.vocab_size for place in range(self.batch))
        return [(*[0] * self.context, anchor) for anchor in anchors]


def scene_of(rig: Rig, store: Store, batch: int, context: int, accepted: int) -> Scene:
    """Let samples in; the pools must be empty and large enough."""
    memories = tuple(place(rig, store, context, accepted + 1) for _ in range(batch))
    return Scene(rig, store, memories, context, accepted, tuple(features(rig, accepted + 1) for _ in memories))


def clear(scene: Scene) -> None:
    """Give everything back to the pools."""
    for memory in scene.memories:
        scene.store.give(memory)


def step(scene: Scene) -> Pass:
    """The target alone: one token of each sample."""
    return passed(scene, [Proposal.certain(())] * scene.batch)


def ingest(scene: Scene) -> None:
    """The drafter takes in what the last round committed."""
    starts = [scene.context - len(rows) for rows in scene.grown]
    scene.rig.drafter.ingest(scene.memories, starts, scene.grown, scene.store)


def draft(scene: Scene) -> list[Proposal]:
    """The block pass and the walk."""
    most = scene.rig.drafter.draft_length
    asks = [
        Ask(i, 0, tokens, 1, most, GREEDY, memory, lambda slot: 0.0)
        for i, (tokens, memory) in enumerate(zip(scene.tokens(), scene.memories, strict=True))
    ]
    return scene.rig.drafter.propose(asks, scene.store)


def passed(scene: Scene, proposals: Sequence[Proposal]) -> Pass:
    """The target over each anchor and its drafts."""
    spans = [
        Span(tokens + proposal.tokens, scene.context, memory, 0, 1 + len(proposal.tokens))
        for tokens, proposal, memory in zip(scene.tokens(), proposals, scene.memories, strict=True)
    ]
    for span in spans:
        scene.store.extend(span.memory, scene.rig.target.streams, span.end)
    return scene.rig.target.forward(spans, scene.store)


def whole(scene: Scene) -> Pass:
    """One round."""
    ingest(scene)
    return passed(scene, draft(scene))
