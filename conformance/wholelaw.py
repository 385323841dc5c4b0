"""Laws of whole requests, each measured over all cells of its numbers, beside what it should be: evidence of LAW-5."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from specqual.contract import Decoder, Request, Rule, Sampling

from .cells import Exploration, Samples
from .codelaw import DRAFTERS, LAWS, Script, code_law, table, target_joint
from .evidence import Case, Guard
from .hazards import traced
from .kinds.cells import DOUBLE
from .lab import Lab

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


def guards(lab: Lab, explorations: Sequence[Exploration]) -> list[Guard]:
    """Acceptances and rejections over all cells, as far as there is a trace."""
    rounds = [r for found in explorations for leaf in found.leaves for r in leaf.rounds]
    accepted, rejected = sum(r.accepted > 0 for r in rounds), sum(r.accepted < len(r.proposals) for r in rounds)
    return [traced(lab, "acceptances", accepted), traced(lab, "rejections", rejected)]
