"""Views: where the rows of a pass stand, and what they see of the pages; made once for all layers that look alike.

Rows are taken eight by eight of a sample, as attention wants them. Samples stand in order of falling row count, so
those that have a next eight are always the first ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import KEYS, QUERIES, Attention, Part

PAGE = 16  # positions
LANES = KEYS // PAGE  # pages of a piece


@dataclass(frozen=True, slots=True)
class Rows:
    """The R new rows of several samples, behind each other, and the positions where they stand."""

    samples: tuple[int, ...]  # in order of falling row count
    owners: Tensor  # [R], the rank of each row's sample
    positions: Tensor  # [R]
    eights: tuple[Tensor, ...]  # the first, second, ... eight rows of each sample that has them, [n, 8]
    answers: Tensor  # [R], where each row's result lies among those of all eights

    def attend(self, attention: Attention, query: Tensor, parts: Sequence[Sequence[Part]]) -> Tensor:
        """Attend from queries [at least R, heads, d], with the parts that each eight sees: as many rows."""
        found = [attention(query[eight], seen).flatten(0, 1) for eight, seen in zip(self.eights, parts, strict=True)]
        answers = torch.cat(found) if len(found) > 1 else found[0]
        return answers[self.answers]


def rows_of(places: Sequence[slice], starts: Sequence[int], count: int) -> Rows:
    """Lay out rows at `places`, that follow each other, each sample's from its start on; answers are padded to `count`
    rows, whose last ones mean nothing."""
    lengths = [place.stop - place.start for place in places]
    samples = tuple(sorted(range(len(places)), key=lambda i: -lengths[i]))
    ranks = torch.tensor(samples).argsort()
    owners = ranks.repeat_interleave(torch.tensor(lengths))
    shifts = torch.tensor([start - place.start for start, place in zip(starts, places, strict=True)])
    positions = torch.arange(len(owners)) + shifts[torch.tensor(samples)][owners]
    begins = torch.tensor([places[i].start for i in samples])
    lasts = torch.tensor([places[i].stop - 1 for i in samples])
    eights, answers, done = list[Tensor](), torch.zeros(count, dtype=torch.long), 0
    for first in range(0, max(lengths), QUERIES):
        some = sum(length > first for length in lengths)
        eight = begins[:some, None] + torch.arange(first, first + QUERIES)
        real = eight <= lasts[:some, None]
        answers[eight[real]] = done + real.flatten().nonzero()[:, 0]
        eights.append(torch.minimum(eight, lasts[:some, None]))
        done += eight.numel()
    return Rows(samples, owners, positions, tuple(eights), answers)


@dataclass(frozen=True, slots=True)
class View:
    """What the samples of a pass, in the order of its rows, see of streams with one window.

    Each sees `pages` pages from page `firsts` of its table on, whole pieces all of them; those from `lasts` on hold
    nothing to be read, whatever the table has there.
    """

    samples: tuple[int, ...]
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    pages: int
    masks: tuple[Tensor, ...]  # of each eight, as in attention.Part
    unread: tuple[Tensor, Tensor]  # piece (of all samples) and key of what pages hold beside what is to be read
    places: Tensor  # [R], among the pages of all samples, where each new row goes
    offsets: Tensor  # [R], within its page

    def parts(self, key: Tensor, value: Tensor) -> list[list[Part]]:
        """What each eight sees of keys and values [n, pieces, kv_heads, 64, d]."""
        return [[Part(key[: len(mask)], value[: len(mask)], mask)] for mask in self.masks]


def view_of(rows: Rows, firsts: Sequence[int], ends: Sequence[int], window: int | None, *, causal: bool = True) -> View:
    """Let each sample's rows see the cached positions from its first to its end: those within the window, and, if
    causal, not behind themselves."""
    first = torch.tensor([firsts[i] for i in rows.samples])
    end = torch.tensor([ends[i] for i in rows.samples])
    base = first // KEYS * KEYS
    pieces = max(1, int(((end - base + KEYS - 1) // KEYS).max()))
    keys = base[:, None] + torch.arange(pieces * KEYS)  # [n, S]
    known = (keys >= first[:, None]) & (keys < end[:, None])
    masks = []
    for eight in rows.eights:
        some = len(eight)
        seen = visible(rows.positions[eight], keys[:some], window, causal=causal) & known[:some, None]
        masks.append(mask_of(seen))
    lasts = -(-end // PAGE)
    unread = (~known & (keys < lasts[:, None] * PAGE)).nonzero()
    at = unread[:, 0] * pieces + unread[:, 1] // KEYS
    pages = base // PAGE
    return View(
        rows.samples,
        tuple(pages.tolist()),
        tuple(lasts.tolist()),
        pieces * LANES,
        tuple(masks),
        (at, unread[:, 1] % KEYS),
        rows.owners * (pieces * LANES) + rows.positions // PAGE - pages[rows.owners],
        rows.positions % PAGE,
    )


def visible(queries: Tensor, keys: Tensor, window: int | None, *, causal: bool) -> Tensor:
    """Whether queries at positions [n, 8] see keys at positions [n, S]: [n, 8, S]."""
    distance = queries[:, :, None] - keys[:, None]
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() < window)


def mask_of(seen: Tensor) -> Tensor:
    """What is added to scores, [n, pieces, 1, 1, 8, 64], where queries see keys [n, 8, S]."""
    mask = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    return torch.unflatten(mask, 2, (-1, KEYS)).transpose(1, 2).contiguous()[:, :, None, None]
