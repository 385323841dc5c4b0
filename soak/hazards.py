"""Hazards, counted in what happened: without them an epoch's silence means nothing."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from specqual.conformance.generators import PAGE
from specqual.contract import Inspectable, Schedulable, Scripted, SeedContract, Traced

from .course import Course, Outcome
from .gauges import by_stretch
from .plan import Plan

DRAFTED = {"rounds with drafts", "acceptances", "rejections", "steps without an accepted draft"}
UNSEEN = "cannot be seen: "  # in front of a hazard, in counts
SKIP = "skipped: "  # in front of why a decoder cannot be had, there
NARROW = 2**15  # positions that a signed integer of 16 bits counts


def counted(outcome: Outcome, plan: Plan, max_context: int) -> tuple[Counter[str], dict[str, dict[str, int]]]:
    """Hazards and totals of one epoch, and its histograms of drafting by the length that was generated."""
    found = Counter[str]()
    drafted, accepted = Counter[int](), Counter[int]()
    found["requests"] = len(outcome.courses)
    found["ticks"] = outcome.ticks
    found["idle ticks"] = outcome.idle + outcome.widths.count(0)
    found["bad requests"] = outcome.bad
    found["waited for room"] = outcome.waited
    found["schedules changed"] = outcome.changes
    found["batches that grew"] = sum(b >= 2 * max(a, 1) and b > 4 for a, b in pairwise(outcome.widths))
    found["batches that shrank"] = sum(a >= 2 * max(b, 1) and a > 4 for a, b in pairwise(outcome.widths))
    for course in outcome.courses:
        found += of_course(course)
        found["prefix hits"] += plan.chunk is not None and hit(course, plan.chunk)
        found["outputs to the end of the context"] += any(
            len(course.request.prompt) + len(ids) == max_context for ids in course.samples
        )
        mine = by_stretch(len(course.request.prompt), course.rounds)
        drafted, accepted = drafted + mine[0], accepted + mine[1]
        barren, without = longest_stretches(course)
        found["most steps in a row without an accepted draft"] = max(
            found["most steps in a row without an accepted draft"], barren
        )
        found["most steps in a row without a draft"] = max(found["most steps in a row without a draft"], without)
    histograms = {"drafted by length": drafted, "accepted by length": accepted}
    told = {name: {str(place): n for place, n in sorted(bins.items())} for name, bins in histograms.items() if bins}
    return Counter({name: count for name, count in found.items() if count}), told


def unseen(decoder: Any, free: Mapping[str, int]) -> set[str]:
    """Hazards that cannot occur with this decoder, or that nothing it offers would show; `free` is what it said of its
    resources when it was made."""
    limits, honoured, found = decoder.claims.limits, decoder.claims.sampling, set[str]()
    if not isinstance(decoder, Traced):
        found |= {*DRAFTED, "steps without a draft", "prefix hits"}
    if not limits.max_draft:
        found |= DRAFTED
    if not isinstance(decoder, Schedulable):
        found |= {"preemptions", "schedules changed", "steps without a draft", "prefix hits"}
    if not isinstance(decoder, Inspectable):
        found |= {"waited for room", "cancelled while waiting"}
        found |= {"states replayed"}
    if not free:
        found |= {"times all was given back"}
    if not (decoder.claims.greedy.bitwise and isinstance(decoder, Traced)):
        found |= {"states replayed", "requests served again, alone"}
    if not isinstance(decoder, Scripted):
        found |= {"requests served again, alone"}
    if not decoder.claims.greedy.bitwise or decoder.claims.seed is SeedContract.NONE:
        found |= {"seeds replayed"}
    if limits.max_batch == 1:
        found |= {"served beside another", "waited for room"}
    if not {"temperature", "seed"} <= honoured:
        found |= {"tokens at other temperatures", "tokens under a law", "seeds replayed"}
    if not honoured & {"presence_penalty", "frequency_penalty", "repetition_penalty"}:
        found.add("tokens under a penalty")
    return found


def hit(course: Course, chunk: int) -> bool:
    """Whether a prompt took fewer passes than its chunks: its beginning was there."""
    first = course.rounds[:1]
    return bool(first) and not course.preempted and first[0].target_forwards < -(-len(course.request.prompt) // chunk)


def of_course(course: Course) -> Counter[str]:
    """What one request met with."""
    found, request = Counter[str](), course.request
    tokens = sum(map(len, course.samples))
    start, end = len(request.prompt), len(request.prompt) + max(map(len, course.samples), default=0)
    found["tokens"] = tokens
    found["requests refused"] += course.refused is not None
    if course.cancelled:
        found["cancellations"] += 1
        found[f"cancelled {course.phase}"] += 1
    found["preemptions"] += course.preempted
    found["served beside another"] += course.beside > 0
    found["outputs across a page's edge"] += bool(tokens) and (end - 1) // PAGE > start // PAGE
    sampling = request.sampling
    if sampling.temperature not in (0.0, 1.0):
        found["tokens at other temperatures"] += tokens
    if sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1:
        found["tokens under a penalty"] += tokens
    if course.asked.follows is not None:
        found["turns behind a turn"] += 1
    found["tokens behind 256 and more"] += tokens if start >= 256 else 0
    found["positions beyond 32,768"] += max(0, end - NARROW) if tokens else 0
    for r in course.rounds:
        behind = r.start >= start
        found["rounds"] += 1
        found["rounds with drafts"] += bool(r.proposals)
        found["acceptances"] += r.accepted > 0
        found["rejections"] += r.accepted < len(r.proposals)
        found["drafts"] += len(r.proposals)
        found["accepted drafts"] += r.accepted
        found["steps without a draft"] += behind and not r.proposals
        found["steps without an accepted draft"] += behind and bool(r.proposals) and not r.accepted
        found["full acceptances"] += bool(r.proposals) and r.accepted == len(r.proposals)
    return found


def longest_stretches(course: Course) -> tuple[int, int]:
    """The most rounds in a row, behind the first one of a sample, without an accepted draft, and without any draft."""
    most = [0, 0]
    for sample in range(course.request.n):
        run = [0, 0]
        for r in course.rounds_of(sample)[1:]:
            run = [run[0] + 1 if not r.accepted else 0, run[1] + 1 if not r.proposals else 0]
            most = [max(pair) for pair in zip(most, run, strict=True)]
    return most[0], most[1]
