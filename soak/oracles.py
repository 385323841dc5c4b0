"""What must be true of an epoch's traffic: each oracle looks at all of it, or at what the plan sampled."""

from typing import Any

from specqual.contract import (
    Counted,
    FinishReason,
    SeedContract,
)

from .bench import Bench
from .calls import called
from .course import Course

SETTLED = 3  # epochs behind which a decoder has captured nearly all that it will
FEW_CAPTURES, THRASH = 12, 0.25  # captures of an epoch, and of its ticks: as many are no thrash


def events(bench: Bench) -> None:
    """Each request has one end, says nothing behind it, as much as it may before it, and is charged for that."""
    limits = bench.stage.decoder.claims.limits
    for course in bench.outcome.courses:
        request = course.request

        def expect(what: str, expected: Any, actual: Any, course: Course = course) -> bool:
            return bench.expect("events", course, what, expected, actual)

        expect("tokens and ends behind its end", 0, course.late)
        if not expect("what submit has against it", None, course.malformed):
            continue
        expect("refused", course.asked.refused, course.refused is not None)
        if course.refused is not None:
            continue
        charged = course.usage and (course.usage.prompt_tokens, course.usage.completion_tokens)
        expect("usage", (len(request.prompt), sum(map(len, course.samples))), charged)
        most = min(request.max_tokens, limits.max_context - len(request.prompt))
        ending = {*request.stop_ids, *(() if request.ignore_eos else limits.eos_ids)}
        for sample, (ids, reason) in enumerate(zip(course.samples, course.reasons, strict=False)):
            where = f"sample {sample}"
            expect(f"{where}: illegal tokens", [], [t for t in ids if not 0 <= t < limits.vocab_size])
            early = next((place for place, token in enumerate(ids[:-1]) if token in ending), None)
            expect(f"{where}: place of an end inside", None, early)
            if reason is FinishReason.LENGTH:
                expect(f"{where}: tokens of one that ended by length", most, len(ids))
            elif reason is FinishReason.STOP:
                expect(f"{where}: whether its last token ends it", True, bool(ids) and ids[-1] in ending)
            else:
                expect(f"{where}: whether it was cancelled", True, course.cancelled)
        expect("reasons", request.n, len(course.reasons))
        for sample in range(request.n) if course.rounds and not course.cancelled else ():
            told = [token for r in course.rounds_of(sample) for token in r.committed]
            expect(f"sample {sample}: tokens that its rounds committed", course.samples[sample], told)


def conservation(bench: Bench) -> None:
    """Everything is free again that was free when the decoder was made."""
    fresh, now = bench.stage.free, bench.stage.resources()
    bench.counts["times all was given back"] += bool(fresh) and now == fresh
    if now != fresh:
        told = ", ".join(
            f"{kind} {now.get(kind)} of {count}" for kind, count in fresh.items() if now.get(kind) != count
        )
        bench.amiss.append(("conservation", f"free with nobody served: {told}", None))
        bench.stage.free = now  # so that the next epoch tells what it lost itself


def captures(decoder: Any) -> int:
    """How many graphs a decoder has captured; none where it does not count them."""
    return called(decoder.counters).get("graph_captures", 0) if isinstance(decoder, Counted) else 0


def graphs(bench: Bench) -> None:
    """Graphs settle: a decoder that has seen some epochs captures few more in a later one."""
    stage, new = bench.stage, captures(bench.stage.decoder) - bench.captured
    if len(stage.behind) >= SETTLED and new > max(FEW_CAPTURES, THRASH * bench.outcome.ticks):
        told = f"{new} captures in {bench.outcome.ticks} ticks, behind {len(stage.behind)} epochs"
        bench.amiss.append(("graphs", told, None))


def repeated(bench: Bench) -> None:
    """Requests that were made twice in one epoch say the same twice, under the seed contract that is claimed."""
    claims = bench.stage.decoder.claims
    by_place = {course.place: course for course in bench.outcome.courses}
    for course in by_place.values():
        before = by_place.get(-1 if course.asked.again is None else course.asked.again)
        if before is None or before.cancelled or course.cancelled or not claims.greedy.bitwise:
            continue
        same = [len(r.proposals) for r in course.rounds] == [len(r.proposals) for r in before.rounds]
        greedy = course.request.sampling.greedy
        if greedy or claims.seed is SeedContract.ALWAYS or (claims.seed is not SeedContract.NONE and same):
            bench.counts["seeds replayed"] += not greedy
            bench.counts["requests made twice"] += 1
            bench.expect(
                "seed", course, f"its output, as that of request {before.place},", before.samples, course.samples
            )
