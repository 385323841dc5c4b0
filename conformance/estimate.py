"""What a run will cost and could see, told before it starts.

`costs.json` holds, per profile and clause, what the decoder that ships here took (`python -m
specqual.conformance.costs`): tokens, seconds inside the decoder and seconds beside it, with the pace of both at the
time. A short probe measures the pace of the decoder and target at hand, and the seconds are scaled by it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

from specqual.contract import Request, Taped, Unsupported

from . import statistics
from .clauses import CLAUSES, PLAYED, ordered
from .drive import NotOffered, serve
from .generators import prompt
from .lab import EFFORTS, Lab
from .rounding import number
from .sight import ANY
from .statistics.budget import rate
from .verdicts import Profile

TABLE = Path(__file__).parent / "costs.json"
PLAYERS = frozenset(f"{chapter}-1" for chapter in PLAYED)  # they share the histories; one pays
GROWS = {  # the sizes that a clause's cost goes with, where its profile was not recorded; others go with the tokens
    "GE-1": ("prompts", "tokens"),
    "GE-2": ("prompts", "tokens"),
    "GE-5": ("prompts",),
    "GE-6": ("examples", "span"),
    "GE-7": ("prompts", "tokens"),
    "LAW-1": ("examples", "span"),
    "LAW-6": ("samples",),
    "LAW-7": ("long", "tokens"),
    "RWD-1": ("histories",),
    "REC-3": ("rejections",),
    "RES-3": ("rejections",),
    "CKP": ("changes",),
    "DRF": ("prompts",),
}
PROBE, PROBED = 16, 2  # tokens, requests
REQUESTS, CELLS = 4, 64  # of a black box, whose outputs are counted; cells of a law that are told apart


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds a token: of the decoder that is asked, and of the reference that judges."""

    decoder: float
    judge: float


@dataclass(frozen=True, slots=True)
class Row:
    """One clause before it is run; tokens and seconds are None where its costs were never recorded."""

    clause: str
    tokens: int | None
    seconds: float | None
    visible: str


@cache
def costs() -> dict[str, Any]:
    """The recorded table."""
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def estimate(lab: Lab, clauses: Iterable[str]) -> list[Row]:
    """A row for each clause whose protocols are offered; DecoderError if the probe breaks the decoder."""
    wanted = [name for name in ordered(clauses) if offered(lab, name)]
    profile = recorded(lab.run.profile)
    table = costs()["profiles"][profile]
    now, then = pace(lab), Pace(**table["pace"])
    payer = next((name for name in wanted if name in PLAYERS), None)
    rows = []
    for name in wanted:
        paid = "RWD-1" if name == payer else name
        cost = table["clauses"].get(paid)
        if cost is None:
            rows.append(Row(name, None, None, "not known"))
            continue
        if cost["kind"] == "counts" and isinstance(lab.decoder, Taped) and lab.run.profile is not Profile.CERTIFY:
            rows.append(Row(name, 0, 0.0, "nothing: decided exactly by others, which read the tape"))
            continue
        seconds = cost["decoder"] * now.decoder / then.decoder + cost["beside"] * now.judge / then.judge
        factor = growth(paid, profile, lab.run.profile)
        rows.append(Row(name, round(cost["tokens"] * factor), seconds * factor, visible(lab, name, cost)))
    return rows


def offered(lab: Lab, name: str) -> bool:
    try:
        lab.require(*CLAUSES[name].needs)
    except (NotOffered, Unsupported):
        return False
    return True


def recorded(profile: Profile) -> Profile:
    """The profile whose costs are known that comes nearest."""
    return next(name for name in (profile, Profile.CORE, Profile.QUICK) if name in costs()["profiles"])


def growth(clause: str, known: Profile, wanted: Profile) -> float:
    """How much more a clause costs under one profile than under another, by the sizes that it goes with."""
    sizes = GROWS.get(clause, GROWS.get(clause.split("-")[0], ("tokens",)))
    return prod(getattr(EFFORTS[wanted], size) / getattr(EFFORTS[known], size) for size in sizes)


def pace(lab: Lab, clock: Callable[[], float] = perf_counter) -> Pace:
    """Measured on a few greedy requests, after one to warm up."""
    chance, room = lab.random("pace"), max(2, min(24, lab.claims.limits.max_context - PROBE))
    requests = [Request(prompt=prompt(lab, chance, room // 2), max_tokens=PROBE) for _ in range(PROBED + 1)]
    serve(lab.decoder, requests[:1])
    started = clock()
    outputs = [serve(lab.decoder, [request])[0].output for request in requests[1:]]
    decoder = (clock() - started) / sum(map(len, outputs))
    started = clock()
    ids = [(*request.prompt, *output) for request, output in zip(requests[1:], outputs, strict=True)]
    for one in ids:
        lab.judge.forward(one)
    return Pace(decoder, (clock() - started) / sum(map(len, ids)))


def visible(lab: Lab, name: str, cost: Mapping[str, Any]) -> str:
    """The smallest effect that the clause will be able to see; `cost` says what its evidence was like when recorded."""
    if cost["kind"] == "counts":
        samples = lab.effort.samples // REQUESTS
        even = [1 / CELLS] * CELLS, [samples // CELLS] * CELLS
        bias = statistics.test(*even, rate(name, 1) / 4 / REQUESTS, cells=CELLS).visible
        return f"a bias of {bias:.2g} (total variation) of likely outputs, less behind single prefixes"
    compared = cost["kind"] in ("values", "histories") and not lab.claims.greedy.bitwise
    if (cost["tolerant"] or compared) and number(lab.claims.dtype) is not None:
        return f"whatever rounding to {lab.claims.dtype} does not explain"
    return ANY


def table(rows: list[Row], profile: Profile) -> list[str]:
    """Lines to print: a row a clause, what it comes to, and where that comes from."""
    lines = [f"{'clause':<8} {'minutes':>8} {'tokens':>9}  smallest effect that would be seen"]
    for row in rows:
        minutes = "?" if row.seconds is None else f"{row.seconds / 60:.2f}"
        lines.append(
            f"{row.clause:<8} {minutes:>8} {'?' if row.tokens is None else f'{row.tokens:,}':>9}  {row.visible}"
        )
    seconds, tokens = sum(row.seconds or 0.0 for row in rows), sum(row.tokens or 0 for row in rows)
    unknown = sum(row.seconds is None for row in rows)
    without = f", without {unknown} whose costs are not known" if unknown else ""
    lines.append(f"{'together':<8} {seconds / 60:>8.2f} {tokens:>9,}  in one process; -n shares it{without}")
    known = recorded(profile)
    if known is not profile:
        lines.append(f"{profile} was not recorded: derived from what {known} took, by the sizes of the two profiles")
    return lines
