"""The reference drafter beside the decoder's: what it says of each slot behind the decoder's own drafts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from specqual.contract import CompactLaw, Round, Sampling
from specqual.contract.errors import CheckpointError
from specqual.reference.choice import Array, Scorer
from specqual.reference.drafter import BlockDrafter, DraftContext, load_drafter
from specqual.reference.forward import Target
from specqual.reference.sampling import Law, filtered

from .drive import NotOffered
from .lab import LENGTH, Lab
from .rounding import Envelope, bound, near_ties, number

MEASURED = 24  # sequences that a drafter's rounding is measured on, a block in the middle and one at the end of each


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a drafter: logits [K, V] of its slots, and the scores of any tokens there."""

    logits: Array
    score: Scorer


@dataclass
class DraftTwin:
    """A drafter in float64, and where the decoder claims a dtype that rounds, the same in that dtype."""

    lab: Lab
    drafter: BlockDrafter

    @classmethod
    def of(cls, lab: Lab) -> "DraftTwin":
        return cls(lab, load(lab, lab.judge.target, torch.float64))

    def context(self, tokens: Sequence[int]) -> DraftContext:
        """What the drafter may look at before a round; `tokens` are prompt and committed output, the anchor last."""
        judge = self.lab.judge
        return DraftContext(tuple(tokens), judge.hidden(tokens[:-1]), judge.target)

    def lengths(self, tokens: Sequence[int], r: Round) -> list[int]:
        """Block sizes that may have led to this round: as many slots as drafts, or the whole block cut short."""
        room = self.drafter.model.config.max_context - len(tokens)
        sizes = dict.fromkeys((len(r.proposals), self.lab.longest))
        return [size for size in sizes if len(r.proposals) <= size <= min(room, self.drafter.draft_length)]

    def block(self, tokens: Sequence[int], length: int) -> Block:
        return block(self.drafter, self.context(tokens), length)

    def by(self, r: Round) -> "DraftTwin":
        """The twin of whoever drafted a round: without its selector, where a policy says that it was off."""
        if r.policy.get("selector", 1):
            return self
        model = self.drafter.model
        return DraftTwin(self.lab, BlockDrafter(replace(model, config=replace(model.config, selector=None))))

    def greedy(self, tokens: Sequence[int], r: Round, nats: float) -> dict[str, list[Any]]:
        """Each draft of a round under the drafts before it: the reference's own choice; how much worse (nats) the
        draft's score is than the best of those that are candidates whatever rounding does; how far its logit is below
        the last candidate's. None for a draft that is no token, or that no block has a slot for."""
        twin = self.by(r)
        found = [
            twin._greedy(twin.block(tokens, size), tokens[-1], r.proposals, nats) for size in self.lengths(tokens, r)
        ]
        nothing = {name: [None] * len(r.proposals) for name in ("best", "regret", "edge")}
        return min(found, key=lambda one: [one["best"] != list(r.proposals), _worst(one)], default=nothing)

    def _greedy(self, slots: Block, before: int, drafts: Sequence[int], nats: float) -> dict[str, list[Any]]:
        best, regret, edge = list[Any](), list[Any](), list[Any]()
        for slot, draft in enumerate(drafts):
            row, ids = slots.logits[slot], np.sort(self.drafter.candidates(slots.logits[slot]))
            scores = slots.score(slot, before, ids)
            best.append(int(ids[scores.argmax()]))
            if not 0 <= draft < len(row):
                return {"best": best, "regret": [*regret, None], "edge": [*edge, None]}
            last, following = edges(row, len(ids))
            sure = scores[row[ids] > following + nats] if len(ids) < len(row) else scores
            own = float(slots.score(slot, before, np.array([draft]))[0])
            regret.append(max(0.0, float(sure.max(initial=own)) - own))
            edge.append(max(0.0, last - float(row[draft])))
            before = draft
        return {"best": best, "regret": regret, "edge": edge}

    def sampled(self, tokens: Sequence[int], r: Round, sampling: Sampling) -> dict[str, list[float]]:
        """Each q of a round against the reference's on the same candidates: their total variation, and by how much
        (nats) a candidate's logit is on the wrong side of the edge."""
        twin = self.by(r)
        found = [twin._sampled(twin.block(tokens, size), tokens[-1], r, sampling) for size in self.lengths(tokens, r)]
        nothing = {"variation": [1.0] * len(r.proposals), "edge": [0.0] * len(r.proposals)}
        return min(found, key=lambda one: max(one["variation"], default=0.0), default=nothing)

    def _sampled(self, slots: Block, before: int, r: Round, sampling: Sampling) -> dict[str, list[float]]:
        off, edge = list[float](), list[float]()
        for slot, (draft, q) in enumerate(zip(r.proposals, r.q, strict=True)):
            row = slots.logits[slot]
            if q is None or not {draft, *q.ids} <= set(range(len(row))):
                return {"variation": [1.0] * len(r.proposals), "edge": edge}
            count, few = len(self.drafter.candidates(row)), self.drafter.model.config.selector is not None
            ids = np.sort(np.array(q.ids if few else range(len(row)), dtype=np.intp))
            law = np.zeros(len(row))
            law[ids] = filtered(slots.score(slot, before, ids), Sampling(temperature=sampling.temperature))
            off.append(float(np.abs(law - dense(q, len(row))).sum()) / 2)
            edge.append(misplaced(row, ids, count) if few else 0.0)
            before = draft
        return {"variation": off, "edge": edge}

    @cached_property
    def measured(self) -> tuple[Envelope, Envelope]:
        """What rounding to the claimed dtype explains of this drafter: nats between two scores of a slot, or two logits
        at the edge of its candidates; and the relative error of a context row."""
        lab, dtype = self.lab, self.lab.claims.dtype
        setup, home, narrow = lab.run.setup, lab.home, lab.judge.narrow(dtype)
        own = (setup.target, setup.draft) == (home.target, home.draft)
        share = lab.pay("drafter", own, setup.target, setup.draft) / 2
        scores, rows = list[Law](), list[Law]()
        if narrow is not None:
            drafter = load(lab, narrow, number(dtype) or torch.float64)
            for ids in lab.sequences(lab.judge, MEASURED):
                lab.judge.forward(ids)  # one pass serves both blocks
                hidden = narrow.forward(ids).hidden
                for tokens in (ids[: LENGTH // 2], ids):
                    rounded = DraftContext(tokens, tuple(states[: len(tokens) - 1] for states in hidden), narrow)
                    exact = self.context(tokens)
                    scores.append(self._moved(exact, drafter, rounded))
                rows.append(np.concatenate(list(off(self.drafter.state(exact)[0], drafter.state(rounded)[0]).values())))
        return bound(scores, dtype, share), bound(rows, dtype, share)

    def _moved(self, exact: DraftContext, other: BlockDrafter, rounded: DraftContext) -> Law:
        """How far rounding moved the near ties of one block, along the drafts that float64 chooses."""
        length, before, moved = self.drafter.draft_length, exact.tokens[-1], list[Law]()
        one, two = block(self.drafter, exact, length), block(other, rounded, length)
        for slot in range(length):
            ids = np.sort(self.drafter.candidates(one.logits[slot]))
            scores = one.score(slot, before, ids)
            moved.append(near_ties(scores, two.score(slot, before, ids)))
            if len(ids) < len(one.logits[slot]):
                last = int(ids[one.logits[slot][ids].argmin()])
                moved.append(near_ties(one.logits[slot], two.logits[slot], last))
            before = int(ids[scores.argmax()])
        return np.concatenate(moved)


def load(lab: Lab, target: Target, dtype: torch.dtype) -> BlockDrafter:
    """The configured drafter, evaluated in a dtype; NotOffered where the reference does not know it."""
    if lab.run.setup.draft is None:
        raise NotOffered("there is no drafter checkpoint")
    try:
        return load_drafter(lab.run.setup.draft, target, dtype=dtype, draft_format=lab.claims.draft_format)
    except CheckpointError as error:
        raise NotOffered(f"the reference does not know this drafter: {error}") from error


def block(drafter: BlockDrafter, context: DraftContext, length: int) -> Block:
    """Run one block of `length` drafts behind a context."""
    hidden = drafter.hidden(context, length)
    logits = drafter.logits(context.target, hidden)
    return Block(logits, drafter.scorer(hidden, logits))


def edges(row: Law, count: int) -> tuple[float, float]:
    """The logits of the last of `count` candidates and of the first token that is none; the latter -inf without one."""
    falling = np.sort(row)[::-1]
    return float(falling[count - 1]), float(falling[count]) if count < len(row) else -np.inf


def misplaced(row: Law, ids: Law, count: int) -> float:
    """How far (nats) the logits of candidates `ids` are below the edge of the best `count`, or of others above it."""
    last, following = edges(row, count)
    inside = max(0.0, last - float(row[ids].min()))
    outside = np.delete(row, ids)
    beyond = max(0.0, float(outside.max()) - following) if len(outside) else 0.0
    return max(inside, beyond) if len(ids) == count else float("inf")


def dense(q: CompactLaw, vocabulary: int) -> Law:
    law = np.zeros(vocabulary)
    law[list(q.ids)] = q.probabilities
    return law


def off(exact: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> dict[str, Law]:
    """The relative error of each row [n, ...] of some tensors, by name; infinite where shapes differ."""
    found: dict[str, Law] = {}
    for name, tensor in exact.items():
        one, two = tensor.double(), other[name].double()
        if one.shape != two.shape:
            found[name] = np.full(max(1, len(one)), np.inf)
            continue
        size = one.flatten(1).norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        found[name] = ((one - two).flatten(1).norm(dim=1) / size).numpy()
    return found


def _worst(found: Mapping[str, Sequence[Any]]) -> float:
    return max((np.inf if value is None else value for name in ("regret", "edge") for value in found[name]), default=0)
