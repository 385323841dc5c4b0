"""Adjudication: recorded greedy runs judged token by token, without the engine that made them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch

from specqual.contract.checkpoint import open_target
from specqual.contract.decoder import Scored
from specqual.reference.score import score_many
from specqual.reference.table import is_table, load_table
from specqual.reference.text import load_text

from .evidence import Evidence, Guard, decide
from .generators import piece
from .judge import LOWEST, Judge
from .kinds import Case, parting
from .lab import LENGTH, MEASURED
from .recorded import BadLog, Log, Recorded
from .report import canonical
from .rounding import DECISIONS, EXACT, Envelope, number
from .statistics.budget import ALPHA
from .verdicts import Decision, Level, Profile, Status, Verdict, exit_status

Ids = tuple[int, ...]
Pair = tuple[Ids, Ids]  # prompt, output
SHARE = ALPHA / 4  # of the error rate for the flips of one log; what two leave is the envelope's
FORMAT = "specqual adjudication 3"
Progress = Callable[[str, int, int], None]  # what, steps done, steps in all


@dataclass(frozen=True, slots=True)
class Arm:
    """One log, judged; the cases of its evidence are in the order of its requests."""

    log: Log
    evidence: Evidence
    decision: Decision


@dataclass(frozen=True, slots=True)
class Flip:
    """Where the two outputs of one prompt first differ; a token is None where that arm had ended.

    `regrets` of (on, off) under the prefix that they share and the `margin` there, nats; None for what is no token.
    """

    on_line: int
    off_line: int
    place: int
    tokens: tuple[int | None, ...]
    regrets: tuple[float | None, ...]
    margin: float
    tie: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """On against off: `pairs` requests with equal prompts, `alone` ones without a partner, at most one flip a pair."""

    pairs: int
    alone: int
    flips: tuple[Flip, ...]
    evidence: Evidence
    decision: Decision


@dataclass(frozen=True, slots=True)
class Adjudication:
    """What the target says about the logs."""

    target: str
    dtype: str
    judged_in: str
    envelope: Envelope
    sequences: int  # that the envelope was measured on
    arms: dict[str, Arm]  # on, and off if given
    comparison: Comparison | None

    @property
    def status(self) -> Status:
        """Exit status; whatever stays open counts, for a log cannot be asked again."""
        found = [arm.decision for arm in self.arms.values()]
        return status_of(found if self.comparison is None else [*found, self.comparison.decision])


def status_of(decisions: Iterable[Decision]) -> Status:
    """Exit status of these decisions, each of which counts."""
    return exit_status([("", Level.MUST, said.verdict) for said in decisions], Profile.CERTIFY)


def adjudicate(
    target: Path,
    on: Log,
    off: Log | None = None,
    *,
    dtype: str | None = None,
    measured: int = MEASURED,
    progress: Progress | None = None,
) -> Adjudication:
    """Judge logs with a target directory; BadLog names a line that this target cannot have been asked.

    The weights are streamed to score the logs. What rounding explains is measured before, with the target held once in
    float64 and once in `dtype`, on `measured` sequences; nothing is held where dtype is float64.
    """
    report = progress or (lambda what, done, steps: None)
    logs = {"on": on} | ({} if off is None else {"off": off})
    found = on.dtype(dtype)
    if off is not None and off.dtype(dtype) != found:
        raise BadLog(off.path, None, "dtype", f"is {off.dtype(dtype)!r} where {on.path.name} has {found!r}")
    shape = load_table(target) if is_table(target) else open_target(target).config
    for log in logs.values():
        check(log, shape.vocab_size, shape.max_context)
    couples, alone = ([], 0) if off is None else paired(prompts_of(on), prompts_of(off))
    if off is not None and not couples:
        raise BadLog(off.path, None, "prompt_ids", f"no prompt is one of {on.path.name}")
    pairs = list(dict.fromkeys(pair for log in logs.values() for pair in asked(log, shape.vocab_size)))
    tokens = sum(len(request.output) for log in logs.values() for request in log.requests)
    envelope = rounding(target, found, tokens, measured, report)
    wide = torch.float64 if (number(found) or torch.float64).itemsize >= 4 else torch.float32
    said = score_many(target, pairs, dtype=wide, progress=lambda done, steps: report("judging", done, steps))
    known = dict(zip(pairs, said, strict=True))
    arms = {name: arm(log, known, shape.vocab_size, envelope) for name, log in logs.items()}
    sides = [arm.evidence.cases for arm in arms.values()]
    comparison = None if off is None else compare(*sides, couples, alone, envelope.nats)
    count = 0 if number(found) is None else measured
    return Adjudication(target.name, found, str(wide).removeprefix("torch."), envelope, count, arms, comparison)


def check(log: Log, vocab_size: int, max_context: int) -> None:
    """Every prompt is one of this target's; outputs are not checked here, they are judged."""
    for request in log.requests:
        for place, token in enumerate(request.prompt):
            if not 0 <= token < vocab_size:
                problem = f"must be between 0 and {vocab_size - 1}, got {token}; is this the target of the log?"
                raise BadLog(log.path, request.line, f"prompt_ids[{place}]", problem)
        if len(request.prompt) + len(request.output) > max_context:
            raise BadLog(log.path, request.line, "output_ids", f"ends beyond the context of {max_context} tokens")


def rounding(target: Path, dtype: str, decisions: int, measured: int, report: Progress) -> Envelope:
    """What rounding to `dtype` explains in a log of so many tokens, measured on pieces of text.

    Without a tokenizer beside the target they are drawn ids. Drawn ids are in no log, and one sequence of them can move
    further than any text: measured with them, too, the envelope of a real model in bfloat16 was five times as wide.
    """
    if number(dtype) is None:
        return Envelope(dtype, EXACT)
    judge, text, chance = Judge.of(target), load_text(target), Random("0/rounding")
    every = range(judge.target.vocab_size)
    usable = [token for token in every if token not in judge.target.eos_ids]

    def shown() -> Iterator[tuple[int, ...]]:
        for done in range(measured):
            yield piece(text, usable, every, chance, LENGTH)
            report("measuring what rounding explains", done + 1, measured)

    return judge.rounding(dtype, shown, lambda: ALPHA / 2 * min(1.0, DECISIONS / max(1, decisions)))


def legal(output: Sequence[int], vocab_size: int) -> int:
    """How many tokens come before the first that is outside the vocabulary."""
    return next((i for i, token in enumerate(output) if not 0 <= token < vocab_size), len(output))


def asked(log: Log, vocab_size: int) -> Iterator[Pair]:
    """What to score for each request; the first illegal token is replaced by 0, and nothing is defined behind it."""
    for request in log.requests:
        yield request.prompt, scorable(request, vocab_size)


def scorable(request: Recorded, vocab_size: int) -> tuple[int, ...]:
    end = legal(request.output, vocab_size)
    return request.output if end == len(request.output) else (*request.output[:end], 0)


def arm(log: Log, known: dict[Pair, Scored], vocab_size: int, envelope: Envelope) -> Arm:
    """The verdict on one log, from what the target says about every token."""
    cases = [case_of(log, request, known, vocab_size, envelope) for request in log.requests]
    tokens = sum(len(case["output"]) for case in cases)
    evidence = Evidence("flips", cases, (Guard("tokens emitted", tokens),), {"requests": len(cases)})
    return Arm(log, evidence, decide(evidence.json()))


def case_of(log: Log, request: Recorded, known: dict[Pair, Scored], vocab_size: int, envelope: Envelope) -> Case:
    """One request as evidence of kind "flips". A log does not say why an output ended, so every end is taken."""
    judged = scorable(request, vocab_size)
    said = known[request.prompt, judged]
    logprob: list[float | None] = [max(value, LOWEST) for value in said.logprob]
    if judged != request.output:
        logprob[-1] = None
    output = request.output[: len(judged)]
    return {
        "arm": "on",  # each log is judged by itself
        "label": log.label(request),
        "line": request.line,
        "prompt": list(request.prompt),
        "max_tokens": len(judged),
        "ending": [],
        "output": list(output),
        "argmax": list(said.argmax),
        "logprob": logprob,
        "best": list(said.best),
        "runner_up": [max(value, LOWEST) for value in said.runner_up],
        "envelope": envelope.nats,
        "spread": envelope.tips,
        "sides": 1,  # the target is exact
        "against": "the target",
        "flips": flips(output, said.argmax),
        "alpha": SHARE,
        "dtype": envelope.dtype,
        "other": dict(request.other),
    }


def flips(output: Sequence[int], argmax: Sequence[int]) -> list[int]:
    """The places of tokens that are not the target's best."""
    return [place for place, (token, best) in enumerate(zip(output, argmax, strict=True)) if token != best]


def prompts_of(log: Log) -> list[Ids]:
    return [request.prompt for request in log.requests]


def paired(on: Sequence[Ids], off: Sequence[Ids]) -> tuple[list[tuple[int, int]], int]:
    """Places of requests with equal prompts, the k-th of a prompt with the k-th, and how many have no partner."""
    waiting: defaultdict[Ids, list[int]] = defaultdict(list)
    for index, prompt in reversed(list(enumerate(off))):
        waiting[prompt].append(index)
    couples = [(i, waiting[prompt].pop()) for i, prompt in enumerate(on) if waiting[prompt]]
    return couples, len(on) + len(off) - 2 * len(couples)


def compare(
    on: Sequence[Case], off: Sequence[Case], couples: Iterable[tuple[int, int]], alone: int, envelope: float
) -> Comparison:
    """Where two arms part, from the cases of both: a tie for a tie's reason only; an end that only one has is open."""
    flips: list[Flip] = []
    cases: list[Case] = []
    ends = pairs = 0
    for i, j in couples:
        pairs += 1
        flip = first_flip(on[i], off[j], envelope)
        what = f"{on[i]['label']} against {off[j]['label']}"
        if flip is None:
            cases.append({"what": what, "expected": [], "actual": []})
            continue
        flips.append(flip)
        if None in flip.tokens:
            ends += 1
            continue
        regrets = [regret for regret in flip.regrets if regret is not None]
        tie = {"regret": max(*regrets, flip.margin), "envelope": envelope} if len(regrets) == 2 else None
        what = f"{what}, first difference output_ids[{flip.place}]"
        cases.append({"what": what, "expected": [flip.tokens[1]], "actual": [flip.tokens[0]], "tie": tie})
    evidence = Evidence("values", cases)
    decision = decide(evidence.json())
    if decision.verdict is not Verdict.VIOLATED and (ends or alone):
        reasons = [f"{ends} of {pairs} outputs end in one arm and go on in the other, which a log does not explain"]
        reasons = (reasons if ends else []) + ([f"{alone} requests are in one log only"] if alone else [])
        decision = Decision(Verdict.INCONCLUSIVE, f"{'; '.join(reasons)}; otherwise: {decision}")
    return Comparison(pairs, alone, tuple(flips), evidence, decision)


def first_flip(on: Case, off: Case, envelope: float) -> Flip | None:
    """The first place where two outputs of one prompt differ, judged under the prefix that they share there; behind an
    illegal token nothing is judged."""
    sides = (on, off)
    outputs = [case["output"] for case in sides]
    apart = parting(*outputs)
    place = min(map(len, outputs)) if apart is None else apart
    if place == max(map(len, outputs)):
        return None
    rows = [case if place < len(case["output"]) else None for case in sides]
    tokens = tuple(None if row is None else row["output"][place] for row in rows)
    regrets = tuple(
        None if row is None or row["logprob"][place] is None else row["best"][place] - row["logprob"][place]
        for row in rows
    )
    margin = next((row["best"][place] - row["runner_up"][place] for row in rows if row is not None), 0.0)
    within = all(regret is not None and regret <= envelope for regret in regrets) and margin <= envelope
    return Flip(on["line"], off["line"], place, tokens, regrets, margin, within)


def to_json(found: Adjudication) -> dict[str, Any]:
    """The report: verdicts with the evidence that they follow from, headers and other keys of the logs included."""
    arms = {
        name: {
            "file": arm.log.path.name,
            "sha256": arm.log.sha256,
            "header": dict(arm.log.header),
            "decision": asdict(arm.decision),
            "evidence": arm.evidence.json(),
        }
        for name, arm in found.arms.items()
    }
    return sealed_up(
        {
            "format": FORMAT,
            "target": found.target,
            "dtype": found.dtype,
            "judged_in": found.judged_in,
            "envelope": {
                "nats": found.envelope.nats,
                "spread": found.envelope.spread,
                "tips": found.envelope.tips,
                "pairs": found.envelope.pairs,
                "sequences": found.sequences,
            },
            "arms": arms,
            "on_against_off": None if found.comparison is None else asdict(found.comparison),
            "status": int(found.status),
        }
    )


def sealed_up(content: dict[str, Any]) -> dict[str, Any]:
    """The report with the SHA-256 of all of it."""
    return content | {"seal": sha256(canonical(content).encode()).hexdigest()}
