"""Scripted drafters: every pattern of acceptance on purpose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from specqual.contract import CompactLaw, Proposal, Request, Script, ScriptContext
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.keys import read_json

from .generators import usable

if TYPE_CHECKING:
    from .lab import Lab


@dataclass(frozen=True, slots=True)
class Pattern:
    """Drafts by letter, one word per round, over and over.

    R right, N what would be right one token later, W wrong, A any token, E end of sequence, M the mask id, X an id
    outside the vocabulary.

    "Right" is the decoder's own greedy continuation; whether it is the target's is not decided here.
    """

    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(word or "·" for word in self.words)

    @classmethod
    def drawn(cls, lab: "Lab") -> st.SearchStrategy["Pattern"]:
        """Any pattern that fits K; shrinks to a single undrafted round."""
        word = st.text(alphabet="RWNAEMX", max_size=max(1, lab.longest))
        return st.lists(word, min_size=1, max_size=4).map(lambda words: cls(tuple(words)))

    def script(self, lab: "Lab", request: Request) -> Script:
        """The drafter that follows this pattern for one request."""
        right, first = continuation(lab, request), len(request.prompt)
        limits, ids = lab.claims.limits, usable(lab)
        illegal = (limits.vocab_size, -1)

        def letter(name: str, place: int, chance: Random) -> int:
            target = right[place] if place < len(right) else ids[0]
            if name == "R":
                return target
            if name == "N":
                return right[place + 1] if place + 1 < len(right) else target
            if name == "W":
                return next(token for token in (ids[chance.randrange(len(ids))], *ids[:2]) if token != target)
            if name == "E":
                return limits.eos_ids[0] if limits.eos_ids else ids[0]
            if name == "M":
                return mask_id(lab)
            return illegal[chance.randrange(2)] if name == "X" else ids[chance.randrange(len(ids))]

        def draft(context: ScriptContext) -> Proposal:
            chance = Random(f"{lab.run.seed}/{len(context.tokens)}/{context.round_index}")
            word = self.words[context.round_index % len(self.words)][: context.max_draft]
            start = len(context.tokens) - first
            drafts = tuple(letter(name, start + i, chance) for i, name in enumerate(word))
            return allowed(lab, context, drafts, right[start:])

        return draft


def allowed(lab: "Lab", context: ScriptContext, drafts: Sequence[int], right: Sequence[int]) -> Proposal:
    """These drafts without a law, as far as the run has them: `right` are the tokens that would be accepted."""
    ids, kept = usable(lab), list(drafts)
    if not lab.has("unequal-drafts"):
        kept = kept[:1]
    if not kept and context.max_draft and not (lab.has("silent-rounds") and lab.has("unequal-drafts")):
        kept = [ids[0]]
    for slot, token in enumerate(right[: len(kept)]):
        if not lab.has("wrong-drafts"):
            kept[slot] = token
        if not lab.has("right-drafts") and kept[slot] == token:
            kept[slot] = next(other for other in ids if other != token)
    return Proposal.certain(tuple(kept))


def continuation(lab: "Lab", request: Request) -> tuple[int, ...]:
    """What the decoder itself answers greedily, a few tokens further than asked for."""
    greedy = replace(request.sampling, temperature=0.0)
    longer = replace(request, max_tokens=request.max_tokens + lab.longest + 1, sampling=greedy, stop_ids=())
    room = lab.claims.limits.max_context - len(request.prompt)
    return lab.answer(replace(longer, max_tokens=min(longer.max_tokens, room))).output


def mask_id(lab: "Lab") -> int:
    """The drafter's mask id, or the last id of the vocabulary where there is no DFlash drafter."""
    last = lab.claims.limits.vocab_size - 1
    if lab.run.setup.draft is None:
        return last
    try:
        return parse_draft(read_json(lab.run.setup.draft / "config.json")).mask_token_id
    except CheckpointError:
        return last


def greedy_patterns(longest: int) -> dict[str, Pattern]:
    """The named patterns for K = `longest`."""
    k = max(1, longest)
    at = tuple("R" * j + "W" + "R" * (k - j - 1) for j in range(k))
    return {
        "perfect": Pattern(("R" * k,)),
        "wrong": Pattern(("W" * k,)),
        "wrong at j": Pattern(at),
        "right-wrong-right": Pattern((("RW" * k)[:k], ("WR" * k)[:k])),
        "one token ahead": Pattern(("N" * k, "R" + "N" * (k - 1))),
        "random": Pattern(("A" * k,)),
        "empty": Pattern(("",)),
        "sometimes empty": Pattern(("R" * k, "", "R" * (k // 2) + "W", "")),
        "end of sequence": Pattern(("E" + "R" * (k - 1), ("RE" * k)[:k])),
        "mask id": Pattern(("M" * k, ("RM" * k)[:k])),
        "out of range": Pattern(("X", "RX"[:k], "R" * (k - 1) + "X")),
        "changing K": Pattern(tuple("R" * j for j in (k, 1, k - 1, 2 % k, k))),
    }


def sampled(law_of: Callable[[Sequence[int]], np.ndarray], shape: str, chance: Random) -> Script:
    """A drafter with a law, drawn by itself: q in a known relation to p, the law [V] behind a prefix.

    `shape`: equal, far, disjoint, narrow (two best tokens), one-hot, certain (no law). `equal` is never rejected.
    """

    def q_of(p: np.ndarray) -> np.ndarray:
        rising, support = np.argsort(p, kind="stable"), np.flatnonzero(p)
        if shape == "far":
            q = np.zeros_like(p)
            q[rising] = np.sort(p)[::-1]
            return (q + p / 4) / (q + p / 4).sum()
        if shape == "disjoint" and len(support) < len(p):
            q = (p == 0).astype(p.dtype)
            return q / q.sum()
        if shape == "narrow":
            q = np.zeros_like(p)
            q[rising[-2:]] = (0.25, 0.75)
            return q
        if shape == "one-hot":
            q = np.zeros_like(p)
            q[chance.choice(support.tolist())] = 1.0
            return q
        return p

    def draft(context: ScriptContext) -> Proposal:
        tokens, laws, prefix = [], [], list(context.tokens)
        for _ in range(context.max_draft if context.round_index % 4 else context.max_draft // 2):
            q = q_of(np.asarray(law_of(prefix), dtype=np.float64))
            alive = np.flatnonzero(q)
            token = int(chance.choices(alive.tolist(), weights=q[alive].tolist())[0])
            certain = shape == "certain"
            laws.append(None if certain else CompactLaw(tuple(map(int, alive)), tuple(map(float, q[alive]))))
            tokens.append(token)
            prefix.append(token)
        return Proposal(tuple(tokens), tuple(laws))

    return draft


SHAPES = ("equal", "far", "disjoint", "narrow", "one-hot", "certain")
