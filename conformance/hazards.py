"""Hazards that answers show, counted in what happened: rounds of the trace, and the order in which tokens came."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from specqual.contract import Decoder, FinishReason, Request, Round, Traced

from .drive import Answer, serve, together
from .evidence import Guard
from .generators import FARTHEST
from .history import PAGE

FILTERS = ("top_k", "top_p", "min_p")

if TYPE_CHECKING:
    from .lab import Lab


def drafted(answers: Iterable[Answer]) -> list[Round]:
    """All rounds with drafts."""
    return [r for answer in answers for r in answer.rounds or () if r.proposals]


def undrafted(answers: Iterable[Answer]) -> int:
    """Rounds without drafts, behind the first and before one with drafts."""
    count = 0
    for answer in answers:
        for sample in range(answer.request.n):
            own = answer.rounds_of(sample)[1:]
            count += sum(not r.proposals and bool(behind.proposals) for r, behind in pairwise(own))
    return count


def unlike_lengths(lab: "Lab", answers: Iterable[Answer]) -> int:
    """Rounds in which rows drafted unlike numbers of tokens, though each had room for the most."""
    by_index = defaultdict[int, set[int]](set)
    for answer in answers:
        room = answer.request.max_tokens - 1
        for index, r in enumerate(answer.rounds_of(0)):
            if index and room >= lab.longest:
                by_index[index].add(len(r.proposals))
            room -= len(r.committed)
    return sum(len(found) > 1 for found in by_index.values())


def drafts(lab: "Lab") -> list[str]:
    """What must have happened in histories for speculation to have been there at all."""
    return ["rounds with drafts"] if lab.speculative else []


def own_drafts(lab: "Lab", answers: Iterable[Answer]) -> list[Guard]:
    """Rounds in which the configured drafter drafted; none where there is no such drafter."""
    return [traced(lab, "rounds with drafts", len(drafted(answers)))] if lab.drafts else []


def traced(lab: "Lab", hazard: str, seen: int, needed: int = 1) -> Guard:
    """A hazard that the trace shows, and nothing else does."""
    return Guard(hazard, seen if isinstance(lab.decoder, Traced) else None, needed)


def speculation(lab: "Lab", answers: Iterable[Answer]) -> list[Guard]:
    """Drafts that stayed and drafts that did not; none where nobody drafts."""
    if not lab.speculative:
        return []
    rounds = drafted(answers)
    accepted, rejected = sum(r.accepted > 0 for r in rounds), sum(r.accepted < len(r.proposals) for r in rounds)
    return [traced(lab, "acceptances", accepted), traced(lab, "rejections", rejected)]


def batch(
    lab: "Lab", requests: Sequence[Request], decoder: Decoder | None = None, seconds: float = 120.0
) -> tuple[Answer, ...]:
    """The answers to requests that are there together, of the configured decoder or another one."""
    decoder = decoder or lab.decoder
    if lab.has("batches"):
        return serve(decoder, requests, seconds)
    return tuple(serve(decoder, [request], seconds)[0] for request in requests)


def beside(
    lab: "Lab",
    batches: Iterable[Sequence[Answer]],
    hazard: str = "requests served beside another",
    *,
    mixed: bool = False,
) -> Guard:
    """Requests of these batches that were served beside another one; `mixed`: greedy ones beside a sampled one.

    A decoder that claims to serve one at a time is not asked for that.
    """
    if lab.claims.limits.max_batch == 1:
        return Guard(f"{hazard} (one at a time is claimed)", None)
    count = 0
    for batch in batches:
        for place, one in enumerate(batch):
            others = [o for o in (*batch[:place], *batch[place + 1 :]) if together(lab.decoder, one, o)]
            if mixed:
                others = [other for other in others if one.request.sampling.greedy > other.request.sampling.greedy]
            count += bool(others)
    return Guard(hazard, count)


def at_once(answers: Sequence[Answer]) -> int:
    """The most requests of a batch that had begun and not ended at some moment."""
    spans = [answer.span for answer in answers if answer.span is not None]
    return max((sum(first <= start <= last for first, last in spans) for start, _ in spans), default=0)


def edges_crossed(answers: Iterable[Answer]) -> int:
    """Outputs across an edge between two pages: some of their tokens before it and some behind."""
    return sum(
        (len(answer.request.prompt) + len(ids) - 1) // PAGE > len(answer.request.prompt) // PAGE
        for answer in answers
        for ids in answer.samples
        if ids
    )


def lengths(lab: "Lab", answers: Sequence[Answer]) -> list[Guard]:
    """Edges of pages, and the end of the sliding window where there is one within reach."""
    guards = [Guard("outputs across a page's edge", edges_crossed(answers))]
    if lab.window is not None and lab.window <= FARTHEST:
        beyond = sum(len(answer.request.prompt) + len(answer.output) > lab.window for answer in answers)
        guards.append(Guard("outputs beyond the window", beyond))
    return guards


def parameters(lab: "Lab", answers: Sequence[Answer]) -> list[Guard]:
    """Tokens drawn at other temperatures than one, and under filters, as far as these are honoured."""
    kinds = {
        "tokens at other temperatures than one": (("temperature",), lambda s: s.temperature not in (0.0, 1.0)),
        "tokens under a filter": (FILTERS, lambda s: not s.greedy and (s.top_k > 0 or s.top_p < 1 or s.min_p > 0)),
    }
    return [
        Guard(hazard, sum(len(ids) for a in answers if drawn(a.request.sampling) for ids in a.samples))
        for hazard, (fields, drawn) in kinds.items()
        if any(lab.honours(field) for field in fields)
    ]


def penalised(answers: Iterable[Answer]) -> Guard:
    """Tokens under a penalty, each with some before it that it is for."""
    count = 0
    for answer in answers:
        s = answer.request.sampling
        if s.presence_penalty or s.frequency_penalty or s.repetition_penalty != 1:
            count += sum(len(ids) - 1 for ids in answer.samples)
    return Guard("tokens under a penalty", count)


def last_rounds(answers: Iterable[Answer]) -> list[Round]:
    """The round that ended each answer's first sample at a stop, as far as the trace tells."""
    found = []
    for answer in answers:
        own = answer.rounds_of(0)
        if own and answer.reasons and answer.reasons[0] is FinishReason.STOP:
            found.append(own[-1])
    return found
