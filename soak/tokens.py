"""Tokens: each judged under its own prefix, and all of them against their laws."""

from collections.abc import Sequence
from dataclasses import replace
from math import floor, log10
from random import Random

import numpy as np

from specqual.conformance.bracket import bracket, variation
from specqual.conformance.judge import LOWEST, log_softmax
from specqual.conformance.statistics import cells, log_e, mean, noise, transform
from specqual.contract import Request, Sampling
from specqual.reference.sampling import filtered, processed
from specqual.reference.table import TableTarget

from .bench import Bench
from .records import Increment
from .stage import Stage

BITS = 4  # of a token's place in its law
SAMPLED = Sampling(temperature=1.0)  # what a table's law is tested under, biases aside
PIECE = 300  # tokens of a far output that are judged
SLACK = 1e-3  # total variation up to which the laws of places are known, at least
COLDEST = 0.7  # temperature that rounding may move all of a law at, and the test of places allows for it
LOCAL = 26  # tokens that the reference is given of a far sequence, in front of those it judges


def regret(bench: Bench) -> None:
    """Every token of the judged requests under its own prefix: greedy ones are best up to rounding, sampled ones are
    possible, and their places in their laws are kept for the law's test."""
    stage, found = bench.stage, bench.outcome.courses
    nats, known = stage.envelope, slack(stage)
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
                first = course.asked.again is None  # else its seed has been drawn from before
                if first and given.slack <= known and given.law[token] > 0:
                    v = noise(bench.salt, course.place * 64 + sample, place)
                    u = transform(given.law, np.array(token), np.array(v))
                    bench.ranks.append(int(cells(u, BITS)[0]))


def slack(stage: Stage) -> float:
    """The total variation up to which the law of a place is known; one that rounding may move further, at the edge of
    a filter, is left out, which depends on the law and not on the token."""
    return max(SLACK, variation(stage.envelope, COLDEST))


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
        return _increment(f"places {bench.stage.ground.name}", {"": counts}, {"": uniform}, slack(bench.stage))
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
