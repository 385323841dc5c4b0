"""Where every token of a pass's one loop lies: the accepted logs and the new rows of all samples, as indices.

Made once for a pass and used by every recurrent layer, so that a layer's work does not grow with calls per sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .span import Span  # whose memory knows of slots, which know of this


@dataclass(frozen=True, slots=True)
class Replay:
    """Samples stand in order of falling token count, so that those still running are always the first ones.

    Flat rows are the logs of all samples, `longest` rows each, and then the R new rows; for the convolution, the
    histories of all samples, kernel - 1 rows each, stand in front of them.
    """

    slots: Tensor  # [B]
    tokens: Tensor  # [T, B], the flat row of each sample's token t
    running: tuple[int, ...]  # samples with a token t, for each of the T
    spoken: tuple[bool, ...]  # whether a token t is a new one of any sample
    outputs: Tensor  # [R], for each new row its place among the outputs of all spoken tokens
    stops: tuple[tuple[int, int], ...]  # (tokens, sample) behind which a state is stored
    stop_slots: Tensor  # [stops]
    taps: Tensor  # [R, kernel], the rows that the convolution of a new row reads, oldest first
    tails: Tensor  # [stops, kernel - 1], the history behind each stop
    logged: tuple[Tensor, Tensor, Tensor]  # new rows, and the slots and places in a log where they go


def replay_of(spans: Sequence["Span"], places: Sequence[slice], kernel: int, longest: int) -> Replay:
    """Lay out the loop of a pass over these spans, whose new rows lie at `places`."""
    count, rows, history = len(spans), places[-1].stop, kernel - 1
    ranked = sorted(range(count), key=lambda i: -(spans[i].memory.kept + len(spans[i].new)))
    lengths = [spans[i].memory.kept + len(spans[i].new) for i in ranked]
    tokens = torch.zeros(lengths[0], count, dtype=torch.long)
    taps = torch.zeros(rows, kernel, dtype=torch.long)
    stops, slots, tails, kept = list[tuple[int, int]](), list[int](), list[Tensor](), list[Tensor]()
    for rank, i in enumerate(ranked):
        span, place, log = spans[i], places[i], spans[i].memory.kept
        new = torch.arange(place.start, place.stop)
        flat = torch.cat([rank * longest + torch.arange(log), count * longest + new])
        everything = torch.cat([rank * history + torch.arange(history), count * history + flat])
        tokens[: len(flat), rank] = flat
        taps[place] = everything[log:].unfold(0, kernel, 1)
        for position, slot in ((span.start + span.certain, span.memory.slot), *([span.mark] if span.mark else ())):
            assert slot is not None
            stops.append((log + position - span.start, rank))
            slots.append(slot)
            tails.append(everything[stops[-1][0] : stops[-1][0] + history])
        behind = new[span.certain :]
        kept.append(torch.stack([behind, torch.full_like(behind, slot_of(span)), torch.arange(len(behind))]))
    running = tuple(sum(length > token for length in lengths) for token in range(lengths[0]))
    fresh = [tokens[token, :n] >= count * longest for token, n in enumerate(running)]
    spoken = tuple(bool(new.any()) for new in fresh)
    said = torch.cat([tokens[token, :n] for token, n in enumerate(running) if spoken[token]]) - count * longest
    outputs = torch.zeros(rows, dtype=torch.long)
    outputs[said[said >= 0]] = torch.arange(len(said))[said >= 0]
    new, owners, at = torch.cat(kept, dim=1)
    return Replay(
        torch.tensor([slot_of(spans[i]) for i in ranked]),
        tokens,
        running,
        spoken,
        outputs,
        tuple(stops),
        torch.tensor(slots),
        taps,
        torch.stack(tails),
        (new, owners, at),
    )


def slot_of(span: "Span") -> int:
    assert span.memory.slot is not None
    return span.memory.slot
