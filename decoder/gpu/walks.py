"""Drafts chosen where their logits lie: walks of a selector, and the best of each slot."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specqual.contract import CompactLaw, Proposal

from ..propose import Ask
from .carry import Array, brought, carried, picked
from .judging import certain
from .selector import Candidates, select
from .top import argmax, top
from .verdict import Drafted


class Way(Enum):
    """How the drafts of a block are chosen."""

    NOTHING = "nothing"  # no block has any
    SELECTOR = "selector"
    LIKELIEST = "likeliest"
    HOST = "host"


class Walks(NamedTuple):
    """What the walks over B blocks of K slots are told."""

    anchors: Tensor  # [B] int32
    temperature: Tensor  # [B] float32, zero for the best score
    uniform: Tensor  # [B, K] float64


@dataclass(frozen=True, slots=True)
class Codes:
    """How a selector joins a token with the one before it: tables [V, rank], and how many ids may stand in a slot."""

    before: Tensor
    after: Tensor
    count: int


def walked(logits: Tensor, joint: Tensor, codes: Codes, walks: Walks) -> Drafted:
    """Drafts of B blocks of K slots, from logits [B K, V] and joint states [B K, rank] float32, with the q of each.

    Nothing here waits for the device, so that a graph can hold it.
    """
    shape = *walks.uniform.shape, -1
    candidates = Candidates(*(side.view(shape) for side in top(logits, codes.count)))
    tables = codes.before, codes.after
    chosen = select(walks.anchors, candidates, joint.view(shape), tables, walks.temperature, walks.uniform)
    return Drafted(chosen.tokens, candidates.ids, chosen.q)


def likeliest(logits: Tensor, walks: Walks) -> Drafted:
    """The best id of each slot, as certain, from logits [B K, V]; of the walks, only their shape matters."""
    return certain(argmax(logits).view(walks.uniform.shape))


def walks_of(wanted: Sequence[tuple[Ask, int]], slots: int, device: torch.device) -> Walks:
    """Asks and how many drafts each gets, as the device is told; slots behind these are walked, too, for nobody."""
    numbers = np.zeros((len(wanted), slots))
    for row, (ask, length) in zip(numbers, wanted, strict=True):
        row[:length] = [ask.uniform(slot) for slot in range(length)]
    anchors = np.array([ask.tokens[-1] for ask, _ in wanted], np.int32)
    temperature = np.array([ask.sampling.temperature for ask, _ in wanted], np.float32)
    return Walks(*carried([anchors, temperature, numbers], device))


def proposals(drafted: Drafted, wanted: Sequence[tuple[Ask, int]]) -> list[Proposal]:
    """Drafts on the host, in one copy; greedy ones are tokens alone, and claim no q."""
    if all(ask.sampling.greedy for ask, _ in wanted):
        (tokens,) = brought([drafted.tokens])
        return [Proposal.certain(tuple(row[:n].tolist())) for row, (_, n) in zip(tokens, wanted, strict=True)]
    found = brought(drafted)
    rows = zip(wanted, lasting(*found), *found, strict=True)
    return [proposal_of(ask.sampling.greedy, min(length, last), *row) for (ask, length), last, *row in rows]


def lasting(tokens: Array, ids: Array, q: Array) -> list[int]:
    """How many drafts of each block stand: those in front of the first slot whose q is no law, or not one of its draft.

    That slot's q depends on the drafts in front of it alone, so what is left of the block is drawn as if it had been
    asked to be so short.
    """
    able = np.isfinite(q).all(-1) & ((ids == tokens[..., None]) & (q > 0)).any(-1)
    counts: list[int] = np.logical_and.accumulate(able, axis=1).sum(axis=1).tolist()
    return counts


def proposal_of(greedy: bool, length: int, tokens: Array, ids: Array, q: Array) -> Proposal:
    """The first drafts of one block."""
    drafts = tuple(tokens[:length].tolist())
    if greedy:
        return Proposal.certain(drafts)
    return Proposal(drafts, tuple(law_of(*slot) for slot in zip(ids[:length], q[:length], strict=True)))


def law_of(ids: Array, q: Array) -> CompactLaw:
    """The law of a slot without the ids that are impossible."""
    alive = q > 0
    return CompactLaw(tuple(ids[alive].tolist()), tuple(q[alive].tolist()))


def blocks_of(x: Tensor, places: Sequence[int], slots: int) -> Tensor:
    """The rows [B K, n] of some blocks of K rows; of all of them, the very tensor."""
    if len(places) * slots == len(x):
        return x
    return picked(x.view(-1, slots, x.shape[1]), places).flatten(0, 1)
