"""Where every token of a pass's one loop lies: the accepted logs and the new rows of all samples, as indices.

Made once for a pass and used by every recurrent layer, so that a layer's work does not grow with calls per sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .span import Span  # whose memory knows of slots, which know of this


@dataclass(frozen=True, slots=True)
class Replay:
    """Samples stand in order of falling token count, so that those still running are always the first ones.

    Flat rows are the kept rows of all logs, and then the R new rows; for the convolution, the histories of all samples,
    kernel - 1 rows each, stand in front of them. What is said to be [R] is padded with zeros to whole tiles.
    """

    slots: Tensor  # [B]
    kept: Tensor  # where the kept rows lie among those of all logs
    tokens: Tensor  # [T, B], the flat row of each sample's token t
    running: tuple[int, ...]  # samples with a token t, for each of the T
    asked: Tensor  # [spoken, B], the new row of each sample's token t, for the last tokens, which may be new ones
    outputs: Tensor  # [R], for each new row its place among the outputs of those tokens
    stops: Mapping[int, tuple[Tensor | None, Tensor]]
    """Behind so many tokens, the ranks (None: all of them) whose states are stored, and the slots where."""
    stop_slots: Tensor  # [stops]
    taps: Tensor  # [R, kernel], the rows that the convolution of a new row reads, oldest first
    tails: Tensor  # [stops, kernel - 1], the history behind each stop
    logged: tuple[Tensor, Tensor]  # new rows that may be rejected, and where they go among the rows of all logs


def replay_of(spans: Sequence["Span"], places: Sequence[slice], kernel: int, longest: int, padded: int) -> Replay:
    """Lay out the loop of a pass over these spans, whose new rows lie at `places`; logs have `longest` rows."""
    kept, history, count = [span.memory.kept for span in spans], kernel - 1, len(spans)
    lengths = [k + place.stop - place.start for k, place in zip(kept, places, strict=True)]
    ranked = sorted(range(count), key=lambda i: -lengths[i])
    longest_run, silent, total = lengths[ranked[0]], min(kept), sum(kept)
    columns, taps, outputs = list[list[int]](), [[0] * kernel for _ in range(padded)], [0] * padded
    logs, stopped, tails, logged = list[int](), dict[int, list[tuple[int, int]]](), list[list[int]](), list[int]()
    stop_slots, behind, done = list[int](), list[int](), 0
    for rank, i in enumerate(ranked):
        span, place, log, slot = spans[i], places[i], kept[i], slot_of(spans[i])
        flat = [*range(done, done + log), *range(total + place.start, total + place.stop)]
        rows = [*range(rank * history, (rank + 1) * history), *(count * history + row for row in flat)]
        done += log
        columns.append(flat + [0] * (longest_run - len(flat)))
        logs += range(slot * longest, slot * longest + log)
        for token, row in enumerate(range(place.start, place.stop), log):
            taps[row] = rows[token : token + kernel]
            outputs[row] = (token - silent) * count + rank
        for position, kind in ((span.start + span.certain, slot), *([span.mark] if span.mark else ())):
            token = log + position - span.start
            stopped.setdefault(token, []).append((rank, kind))
            stop_slots.append(kind)
            tails.append(rows[token : token + history])
        behind += range(place.start + span.certain, place.stop)
        logged += range(slot * longest, slot * longest + place.stop - place.start - span.certain)
    tokens = torch.tensor(columns).T
    return Replay(
        torch.tensor([slot_of(spans[i]) for i in ranked]),
        torch.tensor(logs, dtype=torch.long),
        tokens,
        tuple(sum(length > token for length in lengths) for token in range(longest_run)),
        (tokens[silent:] - total).clamp_(min=0),
        torch.tensor(outputs),
        {token: stops_of(found, count) for token, found in stopped.items()},
        torch.tensor(stop_slots),
        torch.tensor(taps),
        torch.tensor(tails),
        (torch.tensor(behind, dtype=torch.long), torch.tensor(logged, dtype=torch.long)),
    )


def stops_of(found: Sequence[tuple[int, int]], count: int) -> tuple[Tensor | None, Tensor]:
    """One store for all that stop together, as (rank, slot)."""
    ranks, slots = zip(*found, strict=True)
    return None if ranks == tuple(range(count)) else torch.tensor(ranks), torch.tensor(slots)


def slot_of(span: "Span") -> int:
    assert span.memory.slot is not None
    return span.memory.slot
