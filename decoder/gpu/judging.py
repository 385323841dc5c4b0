"""Verdicts on what a pass was asked for, from its logits where they lie.

Whether a row is judged here follows from its own request and drafts, so that a neighbour changes nothing. What the
kernels do not have is left to the host, with a copy of that row's logits alone: penalties, biases, ids that are
forbidden, log-probabilities, and a q over more ids than `MOST`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specqual.contract import Purpose, Request, Rule

from ..flight import Flight
from ..row import Row
from ..sampling import bare
from ..transaction import Terms, numbers
from ..verify import Verdict
from .carry import Array, brought, carried, together
from .law import Filters, law
from .top import argmax
from .verdict import Drafted, Uniforms, Verdicts, draw, judge, matched

WIDTHS = (1, 16, 64)  # ids of a q, as kernels are compiled for
MOST = WIDTHS[-1]
ALONE = (Rule.NONE, Rule.SAMPLER_MATCH)  # the target draws by itself, and drafts are compared with it


class Demands(NamedTuple):
    """How the R rows of B samples are drawn.

    `numbers` are those of each slot; or of each row [R] float64, where drafts are compared with the target's own draws.
    """

    filters: Filters  # [R]
    numbers: Uniforms | Tensor


def judged(
    logits: Tensor, first: Tensor, drafted: Drafted, demands: Demands | None, out: Verdicts | None = None
) -> Verdicts:
    """Verdicts on B samples by logits [R, V], of which rows first[b] to first[b + 1] are those of sample b.

    Without demands every row is greedy; with them a row of temperature zero comes to the same. Nothing here waits for
    the device, so that a graph can hold it.
    """
    if demands is None:
        return matched(argmax(logits), first, drafted.tokens, out)
    p = law(logits, demands.filters)
    if isinstance(demands.numbers, Uniforms):
        return judge(logits, first, p, drafted, demands.numbers, out)
    return matched(draw(logits, p, demands.numbers), first, drafted.tokens, out)


def judgeable(flight: Flight, rule: Rule) -> bool:
    """Whether the kernels have all that it takes."""
    request, laws = flight.row.request, flight.proposal.q if rule is Rule.RATIO else ()
    narrow = request.sampling.greedy or all(q is None or len(q.ids) <= MOST for q in laws)
    return flight.span.judged > 0 and plain(request) and narrow


def plain(request: Request) -> bool:
    """Whether the kernels can judge its rows, whatever is drafted with a narrow q."""
    return bare(request.sampling) and not request.min_tokens and request.logprobs is None


@dataclass(frozen=True, slots=True)
class DeviceJudge:
    """Judges flights of at most `slots` drafts on a device, which is told of them in one copy."""

    slots: int
    device: torch.device

    @torch.inference_mode()
    def __call__(self, flights: Sequence[Flight], terms: Terms) -> list[Flight]:
        """The same flights; all verdicts come to the host together, when the first of them is asked for."""
        found = list(flights)
        places = [place for place, flight in enumerate(flights) if judgeable(flight, terms.rule)]
        if not places:
            return found
        mine = [flights[place] for place in places]
        verdicts = judged(together([flight.logits for flight in mine]), *asked(mine, terms, self.slots, self.device))
        waited = cache(lambda: [side.tolist() for side in brought(verdicts)])

        def one(order: int) -> Callable[[], Verdict]:
            return lambda: Verdict(*(side[order] for side in waited()))

        for order, place in enumerate(places):
            found[place] = flights[place]._replace(verdict=one(order))
        return found


def asked(
    flights: Sequence[Flight], terms: Terms, slots: int, device: torch.device
) -> tuple[Tensor, Drafted, Demands | None]:
    """Of each flight, for `judged`: its first row, its drafts, and how it is drawn."""
    counts = [len(flight.proposal.tokens) for flight in flights]
    tokens = np.zeros((len(flights), slots), np.int32)
    for place, flight, count in zip(tokens, flights, counts, strict=True):
        place[:count] = flight.proposal.tokens
    needs = needed([flight.row for flight in flights], counts, terms, slots)
    laws = laws_of(flights, tokens) if needs and terms.rule is Rule.RATIO else ()
    first, there, *rest = carried([firsts(counts), tokens, *needs, *laws], device)
    drafted = Drafted(there, *rest[len(needs) :]) if laws else certain(there)
    return first, drafted, demands(rest[: len(needs)])


def firsts(counts: Sequence[int]) -> Array:
    """Where the rows of each sample begin, and the last ones end: those behind its anchor and so many drafts."""
    return np.array([0, *accumulate(1 + count for count in counts)], np.int32)


def needed(rows: Sequence[Row], counts: Sequence[int], terms: Terms, slots: int) -> list[Array]:
    """What `demands` are made of for samples with so many drafts, whichever; nothing where all of them are greedy.

    Every number is read that a decision may need.
    """
    if all(row.request.sampling.greedy for row in rows):
        return []
    drawn = [(numbers(row, terms, len(row.tokens)), count) for row, count in zip(rows, counts, strict=True)]
    params = [row.request.sampling for row, count in zip(rows, counts, strict=True) for _ in range(1 + count)]
    filters: list[Array] = [
        np.array([one.temperature for one in params], np.float64),
        np.array([min(one.top_k, 2**31 - 1) for one in params], np.int32),
        np.array([one.top_p for one in params], np.float64),
        np.array([one.min_p for one in params], np.float64),
    ]
    if terms.rule in ALONE:
        own = [u(Purpose.BONUS, slot) for u, count in drawn for slot in range(1 + count)]
        return [*filters, np.array(own, np.float64)]
    accept, residual, bonus = (np.zeros((len(rows), slots + more)) for more in (0, 0, 1))
    for place, (u, count) in enumerate(drawn):
        accept[place, :count] = [u(Purpose.ACCEPT, slot) for slot in range(count)]
        residual[place, :count] = [u(Purpose.RESIDUAL, slot) for slot in range(count)]
        bonus[place, count] = u(Purpose.BONUS, count)
    return [*filters, accept, residual, bonus]


def demands(sides: Sequence[Tensor]) -> Demands | None:
    """The same on the device."""
    filters, own = sides[:4], sides[4:]
    return Demands(Filters(*filters), own[0] if len(own) == 1 else Uniforms(*own)) if sides else None


def certain(tokens: Tensor) -> Drafted:
    """Drafts [B, K] with one-hot laws."""
    return Drafted(tokens, tokens[..., None], torch.ones(*tokens.shape, 1, dtype=torch.float64, device=tokens.device))


def laws_of(flights: Sequence[Flight], tokens: Array) -> tuple[Array, Array]:
    """Ids and q [B, K, C] of drafts [B, K]: one-hot ones have the draft alone, and what is left of C has no mass."""
    told = [() if flight.row.request.sampling.greedy else flight.proposal.q for flight in flights]
    most = max((len(q.ids) for laws in told for q in laws if q is not None), default=1)
    width = next(width for width in WIDTHS if width >= most)
    ids, masses = np.repeat(tokens[..., None], width, axis=2), np.zeros((*tokens.shape, width))
    masses[..., 0] = 1.0
    for place, laws in enumerate(told):
        for slot, q in enumerate(laws):
            if q is not None:
                ids[place, slot, : len(q.ids)] = q.ids
                masses[place, slot] = (*q.probabilities, *[0.0] * (width - len(q.ids)))
    return ids, masses
