"""What must be true of an epoch's traffic: each oracle looks at all of it, or at what the plan sampled."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import floor, log10
from random import Random
from typing import Any

import numpy as np

from specqual.conformance.bracket import bracket
from specqual.conformance.drive import serve
from specqual.conformance.judge import LOWEST, log_softmax
from specqual.conformance.states import first_difference
from specqual.conformance.statistics import cells, log_e, mean, noise, transform
from specqual.conformance.twin import look
from specqual.contract import (
    Counted,
    FinishReason,
    Proposal,
    Request,
    Round,
    Sampling,
    ScriptContext,
    Scripted,
    SeedContract,
    Traced,
)
from specqual.reference.sampling import filtered, processed
from specqual.reference.table import TableTarget

from .course import Course, Looked, Outcome
from .journal import Increment
from .plan import Plan
from .stage import Stage

BITS = 4  # of a token's place in its law
FILL = 400  # ticks in which a prompt must be filled
SETTLED = 3  # epochs behind which a decoder has captured nearly all that it will
FEW_CAPTURES, THRASH = 12, 0.25  # captures of an epoch, and of its ticks: as many are no thrash
SAMPLED = Sampling(temperature=1.0)  # what a table's law is tested under, biases aside
PIECE = 300  # tokens of a far output that are judged
LOCAL = 26  # tokens that the reference is given of a far sequence, in front of those it judges


@dataclass
class Bench:
    """One epoch before its oracles. `amiss` collects an oracle's name, a sentence, and the place it is about. `salt` is
    the epoch's own, so that the noise of its tokens' places is unlike that of any other epoch."""

    stage: Stage
    plan: Plan
    outcome: Outcome
    salt: int
    amiss: list[tuple[str, str, int | None]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    regrets: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    ranks: list[int] = field(default_factory=list)  # cells of sampled tokens within their laws

    def expect(self, oracle: str, course: Course, what: str, expected: Any, actual: Any) -> bool:
        """Note it if something about a request is not as it must be."""
        if expected == actual:
            return True
        told = f"request {course.place}: {what} is {actual}, must be {expected}"
        self.amiss.append((oracle, told, course.place))
        return False


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
        if course.refused is not None or course.usage is None:
            continue
        total = sum(map(len, course.samples))
        expect("usage", (len(request.prompt), total), (course.usage.prompt_tokens, course.usage.completion_tokens))
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


def regret(bench: Bench) -> None:
    """Every token of the judged requests under its own prefix: greedy ones are best up to rounding, sampled ones are
    possible, and their places in their laws are kept for the law's test."""
    stage, found = bench.stage, bench.outcome.courses
    nats = stage.envelope
    judge, vocabulary = stage.judge, stage.decoder.claims.limits.vocab_size
    for course in (course for course in found if course.place in bench.plan.judged and course.refused is None):
        for sample, ids in enumerate(course.samples):
            if not ids or not all(0 <= token < vocabulary for token in ids):
                continue
            request, start = course.request, 0
            if stage.ground.sliding:
                request, ids, start = local(request, ids, stage, bench.salt)
            for place, row in enumerate(judge.rows(request, ids), start):
                token, logp = ids[place - start], log_softmax(row)
                behind = max(0.0, float(logp.max()) - max(float(logp[token]), LOWEST))
                bench.counts["tokens judged"] += 1
                if request.sampling.greedy:
                    best = int(logp.argmax())
                    bench.regrets[scale(behind if token != best else 0.0)] += 1
                    bench.worst = max(bench.worst, behind if token != best else 0.0)
                    if token != best and behind > nats:
                        told = f"request {course.place}, token {place} is {token} where {best} is best"
                        told += f": {behind:.4g} nats worse, and rounding explains {nats:.3g}"
                        bench.amiss.append(("regret", told, course.place))
                        break
                    continue
                given = bracket(row, request.sampling, nats)
                if given.loose[token] <= 0:
                    told = f"request {course.place}, token {place} is {token}, which its law excludes"
                    bench.amiss.append(("regret", told, course.place))
                    break
                bench.counts["sampled tokens judged"] += 1
                if given.law[token] > 0:
                    v = noise(bench.salt, course.place * 64 + sample, place)
                    u = transform(given.law, np.array(token), np.array(v))
                    bench.ranks.append(int(cells(u, BITS)[0]))


def local(request: Request, ids: list[int], stage: Stage, salt: int) -> tuple[Request, list[int], int]:
    """A piece of an output behind as much as decides it, on a target that sees no more: all layers slide, and RoPE
    knows distances only. With it, the place of the piece, which is drawn."""
    start = Random(salt).randrange(max(1, len(ids) - PIECE + 1))
    reach = 4 * (stage.lab.window or LOCAL) + LOCAL
    prompt = (*request.prompt, *ids[:start])[-reach:]
    return replace(request, prompt=prompt), ids[start : start + PIECE], start


def scale(regret: float) -> str:
    """The bin of a regret: its power of ten."""
    return "0" if regret <= 1e-12 else f"1e{floor(log10(regret))}"


def laws(bench: Bench) -> tuple[Increment, ...]:
    """Tokens against their laws: on a table behind each of its contexts, elsewhere by their place in their own law."""
    target = bench.stage.judge.target
    if not isinstance(target, TableTarget):
        counts = np.bincount(bench.ranks, minlength=2**BITS).tolist()
        uniform = (2.0**-BITS,) * 2**BITS
        return _increment(f"places {bench.stage.ground.name}", {"": counts}, {"": uniform}, 1e-3)
    rows: dict[str, list[int]] = {}
    known: dict[str, tuple[float, ...]] = {}
    for course in bench.outcome.courses:
        sampling = course.request.sampling
        if replace(sampling, logit_bias=()) != SAMPLED or course.refused is not None:
            continue
        above = "".join(f"{token}{bias:+g}|" for token, bias in sampling.logit_bias)
        for ids in course.samples:
            tokens = [*course.request.prompt, *ids]
            for place in range(len(course.request.prompt), len(tokens)):
                suffix = tokens[max(0, place - target.context) : place]
                name = above + ",".join(map(str, suffix))
                if name not in rows:
                    known[name] = law_of(target, suffix, sampling)
                    rows[name] = [0] * target.vocab_size
                rows[name][tokens[place]] += 1
                bench.counts["tokens under a law"] += 1
    impossible = [
        (name, token) for name, row in rows.items() for token, n in enumerate(row) if n and not known[name][token]
    ]
    for name, token in impossible:
        bench.amiss.append(("law", f"token {token} behind {name or 'nothing'}, which has probability zero", None))
    return _increment(f"law {bench.stage.ground.name}", rows, known, 0.0) if not impossible else ()


def law_of(target: TableTarget, suffix: Sequence[int], sampling: Sampling) -> tuple[float, ...]:
    """The law behind these tokens, which are as many as the table looks at."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.array(target.law(suffix), dtype=np.float64))
    return tuple(map(float, filtered(processed(logits, sampling, (), ()), sampling)))


def _increment(
    test: str, rows: dict[str, list[int]], known: dict[str, tuple[float, ...]], slack: float
) -> tuple[Increment, ...]:
    """The evidence of one epoch; none of nothing."""
    samples = sum(map(sum, rows.values()))
    if not samples:
        return ()
    own = mean([log_e(known[name], row, slack) for name, row in rows.items()])
    counts = {name: tuple(row) for name, row in sorted(rows.items())}
    return (Increment(test, own, samples, counts, known, slack),)


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
    return decoder.counters().get("graph_captures", 0) if isinstance(decoder, Counted) else 0


def graphs(bench: Bench) -> None:
    """Graphs settle: a decoder that has seen some epochs captures few more in a later one."""
    stage, now = bench.stage, captures(bench.stage.decoder)
    new, stage.captured = now - stage.captured, now
    if len(stage.behind) >= SETTLED and new > max(FEW_CAPTURES, THRASH * bench.outcome.ticks):
        told = f"{new} captures in {bench.outcome.ticks} ticks, behind {len(stage.behind)} epochs"
        bench.amiss.append(("graphs", told, None))


def alone(bench: Bench) -> None:
    """Sampled requests once more, each alone in the undisturbed twin with the same drafts: every token the same."""
    claims, twin = bench.stage.decoder.claims, bench.stage.twin
    if not claims.greedy.bitwise or not all(isinstance(twin, protocol) for protocol in (Scripted, Traced)):
        return
    for course in bench.outcome.courses:
        if course.place not in bench.plan.alone or course.refused is not None or not any(course.samples):
            continue
        if not course.request.sampling.greedy and claims.seed is SeedContract.NONE:
            continue
        twin.script(retold(course.rounds, course.request.n))
        answer = serve(twin, [course.request])[0]
        twin.script(None)
        bench.counts["requests served again, alone"] += 1
        for sample, (mine, theirs) in enumerate(zip(course.samples, answer.samples, strict=True)):
            told = list(theirs[: len(mine)] if course.cancelled else theirs)
            if not bench.expect("isolation", course, f"sample {sample}, against itself alone,", told, mine):
                break


def retold(rounds: Sequence[Round], samples: int) -> Any:
    """A script that drafts what these rounds drafted."""
    drafts: dict[tuple[int, int], Proposal] = {}
    for sample in range(samples):
        own = [r for r in rounds if r.sample == sample]
        drafts |= {(sample, index): Proposal(r.proposals, r.q) for index, r in enumerate(own)}

    def script(context: ScriptContext) -> Proposal:
        return drafts.get((context.sample, context.round_index), Proposal.certain(()))

    return script


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


def states(bench: Bench) -> None:
    """States that were looked at equal those of the twin that was given the same tokens as a prompt, bit for bit."""
    claims, twin = bench.stage.decoder.claims, bench.stage.twin
    if not claims.greedy.bitwise:
        return
    for seen in bench.outcome.looked:
        if len(seen.tokens) + 2 > claims.limits.max_context:
            continue  # a prompt of that length leaves the twin no room to say anything
        found = replayed(twin, seen, claims)
        if found is None:
            bench.amiss.append(("state", f"{len(seen.tokens)} tokens were never filled in a twin", seen.place))
            continue
        bench.counts["states replayed"] += 1
        differing = first_difference(found.tensors, seen.state.tensors, seen.state.positions, found.positions, 0.0)
        for what, expected, actual in differing:
            told = f"request {seen.place}, {len(seen.tokens)} tokens: {what} is {actual}, of the twin {expected}"
            bench.amiss.append(("state", told, seen.place))
            break


def replayed(twin: Any, seen: Looked, claims: Any) -> Any:
    """The twin's state behind these tokens as a prompt, None where it never comes to be."""
    request_id = twin.submit(Request(prompt=seen.tokens, max_tokens=2, ignore_eos="ignore_eos" in claims.sampling))
    try:
        for _ in range(FILL):
            twin.step()
            state = look(twin, request_id, 0)
            if state is not None and twin.rounds(request_id) and state.length == len(seen.tokens):
                return state
        return None
    finally:
        _end(twin, request_id)


def _end(twin: Any, request_id: int) -> None:
    with suppress(KeyError):
        twin.cancel(request_id)
    twin.step()


ORACLES = (events, regret, alone, repeated, states, conservation, graphs)
