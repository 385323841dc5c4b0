"""Laws of whole requests, each measured over all cells of its numbers, beside what it should be: evidence of LAW-5."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specqual import fixtures
from specqual.contract import Decoder, Method, Request, Rule, Sampling

from .bracket import bracket
from .cells import Exploration, Samples
from .codelaw import DRAFTERS, LAWS, Script, code_law, table, target_joint
from .contexts import TINY, TINY_DRAFTS, drafter_of, telling
from .drive import NotOffered
from .evidence import Case, Guard
from .hazards import traced
from .judge import Judge
from .kinds.cells import DOUBLE
from .lab import Lab
from .mutate import changed
from .rounding import number
from .verdicts import Profile

START = 3  # the prompt of a table: the token behind it is certain, so that no cell is spent on a round without drafts


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of a table: output tokens of each of n samples, the law of drafts, drafts of a round, and how many
    rounds draft."""

    q: str
    tokens: int = 4
    drafts: int = 2
    rounds: int = 4
    n: int = 1

    def __str__(self) -> str:
        samples = f", {self.n} samples" if self.n > 1 else ""
        return f"q {self.q}, {self.drafts} drafts in up to {self.rounds} rounds, {self.tokens - 1} tokens{samples}"


QUICK = (Plan("far"), Plan("narrow"), Plan("equal", rounds=1), Plan("narrow", tokens=3, drafts=1, n=2))
THOROUGH = (
    *(Plan(q) for q in DRAFTERS),
    *(Plan(q, drafts=1) for q in DRAFTERS),
    *(Plan(q, tokens=3, drafts=1, n=2) for q in DRAFTERS),
)


def case(what: str, expected: dict[Samples, Fraction], found: Exploration, tolerance: float = DOUBLE) -> Case:
    """Both laws, and what the measured one took."""
    laws = {
        name: [[outcome, float(mass)] for outcome, mass in sorted(law.items())]
        for name, law in (("expected", expected), ("found", found.law))
    }
    counts = {"cells": len(found.leaves), "edges": found.edges, "runs": found.runs}
    return {"what": what, **laws, **counts, "moved": found.off, "tolerance": tolerance}


@contextmanager
def tabled(lab: Lab) -> Iterator[Decoder]:
    """The decoder with the table target and room for scripted drafts."""
    with TemporaryDirectory() as folder:
        config = {"model_type": "specqual_table", "vocab_size": 4, "context": 1}
        laws = {suffix: numbers.split() for suffix, numbers in LAWS.items()}
        (Path(folder) / "config.json").write_text(json.dumps(config | {"laws": laws}))
        decoder = lab.tiny(target=Path(folder), draft=None, draft_length=2, dtype=None)
        lab.require("Scripted", "Taped", decoder=decoder)
        yield decoder


def scripted_cases(lab: Lab, rule: Rule, decoder: Decoder) -> Iterator[tuple[Case, Exploration]]:
    """Drafts on purpose, over one round and over several, for one sample and for two."""
    for plan in THOROUGH if lab.thorough else QUICK:
        request = Request(prompt=(START,), max_tokens=plan.tokens, n=plan.n, sampling=Sampling(temperature=1.0))
        if plan.n > 1 and not {"n"} <= decoder.claims.sampling:
            continue
        p = table(LAWS, START)
        found = code_law(decoder, request, rule, p, Script(DRAFTERS[plan.q], plan.drafts, plan.rounds))
        yield case(f"{rule}, {plan}", target_joint(p, request), found), found


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """What is asked of a model with a drafter: how many tokens each law has, output tokens, and samples."""

    width: int
    tokens: int
    n: int = 1

    def __str__(self) -> str:
        samples = f", {self.n} samples" if self.n > 1 else ""
        return f"drafts of its own, {self.width} candidates, {self.tokens} tokens{samples}"


OWN = {
    Profile.QUICK: (OwnPlan(2, 3),),
    Profile.DEVICE: (OwnPlan(2, 3),),
    Profile.CORE: (OwnPlan(2, 4), OwnPlan(3, 3)),
    Profile.NIGHTLY: (OwnPlan(2, 4), OwnPlan(3, 3)),
    Profile.CERTIFY: (OwnPlan(2, 4), OwnPlan(3, 3), OwnPlan(2, 3, n=2)),
}
TRIED = 24  # prompts, of which that one is asked behind which a fault of verification shows most
CUT = (Method.DFLASH, Method.DFLASH2, Method.DFLASH_SELECTOR, Method.DFLASH_CONV)  # other drafters draw from all tokens
FINE = 2.0**-48  # how closely edges of a model in float64 are looked for: a thousand of them are far from 1e-12


def drafted_cases(lab: Lab, rule: Rule) -> Iterator[tuple[Case, Exploration]]:
    """Drafts of its own, on a tiny target whose laws are cut to few tokens: in float64; in the claimed numbers where
    float64 is not to be had, or beside it in a thorough run. NotOffered where there are none, where its drafter is of
    no kind that is at hand, or where its trace does not tell what was drafted."""
    if not lab.drafts:
        raise NotOffered("no drafter is configured")
    if lab.claims.method not in CUT:
        raise NotOffered(f"no drafter of the method {lab.claims.method} with few candidates is at hand")
    lab.require_fields("top_k")
    lab.require("Traced")
    method = TINY_DRAFTS[lab.claims.method]
    target = fixtures.path(TINY)
    judge = Judge.of(target)
    plans = OWN[lab.run.profile]
    for plan in plans:
        if plan.n > 1 and not lab.honours("n"):
            continue
        with changed(fixtures.path(method), config=partial(narrowed, width=plan.width)) as draft:
            setup = {"target": target, "draft": draft, "draft_length": min(2, lab.longest)}
            asked = telling(
                judge,
                drafter_of(judge, draft, lab.claims.draft_format),
                Sampling(temperature=1.0, top_k=plan.width),
                lab.random("LAW-5"),
                1,
                TRIED,
            )
            request = replace(asked[0], max_tokens=plan.tokens, n=plan.n)
            p = cache(lambda output, r=request: judge.law(r, output))
            expected = target_joint(p, request, judge.target.eos_ids)
            for decoder in precisions(lab, setup, both=lab.thorough and plan == plans[0]):
                tolerance, step = DOUBLE, FINE
                if number(decoder.claims.dtype) is not None:
                    tolerance = joint_slack(judge, request, lab.envelope(decoder, judge))
                    step = max(FINE, tolerance / 1024)
                found = code_law(decoder, request, rule, p, step=step)
                what = f"{rule}, {plan}, {decoder.claims.dtype}"
                yield case(what, expected, found, tolerance) | {"wanted": lab.effort.wanted}, found


def narrowed(config: dict[str, Any], width: int) -> None:
    """A drafter's configuration with a selector, if any, of so many candidates."""
    own = config.get("dflash_config", config)
    if "selector_top_k" in own:
        own["selector_top_k"] = width


def precisions(lab: Lab, setup: dict[str, Any], *, both: bool) -> Iterator[Decoder]:
    """The decoder in float64 and, where that is not to be had or both are wanted, in its own numbers."""
    try:
        exact = lab.tiny(dtype="float64", **setup)
    except NotOffered:
        yield lab.tiny(**setup)
        return
    yield exact
    if both and exact.claims.dtype != lab.claims.dtype:
        yield lab.tiny(**setup)


def joint_slack(judge: Judge, request: Request, nats: float) -> float:
    """The total variation that rounding by `nats` explains in the joint law of an answer: of each token, the mean over
    the outputs before it, added up over tokens and samples."""

    def behind(output: tuple[int, ...], mass: float) -> float:
        if len(output) == request.max_tokens or (output and output[-1] in judge.target.eos_ids):
            return 0.0
        given = bracket(judge.row(request, output), request.sampling, nats)
        tokens = ((int(token), mass * float(given.law[token])) for token in given.law.nonzero()[0])
        return mass * given.slack + sum(behind((*output, token), part) for token, part in tokens)

    return min(1.0, request.n * behind((), 1.0))


def guards(lab: Lab, explorations: Sequence[Exploration]) -> list[Guard]:
    """Acceptances and rejections over all cells, as far as there is a trace."""
    rounds = [r for found in explorations for leaf in found.leaves for r in leaf.rounds]
    accepted, rejected = sum(r.accepted > 0 for r in rounds), sum(r.accepted < len(r.proposals) for r in rounds)
    return [traced(lab, "acceptances", accepted), traced(lab, "rejections", rejected)]
