"""The form of each clause's evidence: its kinds, how many cases at least, and the hazards that it must count.

A verdict follows from the evidence beside it, so `specqual verify` also asks whether that is the evidence which the
clause gathers: nothing of another kind, no fewer cases than are planned, no hazard left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from specqual.contract import Rule

from .facts import Facts
from .quotas import held, owed
from .rounding import EXACT, number
from .scripts import SHAPES, greedy_patterns
from .verdicts import Verdict

Count = Callable[[Facts], int]
WHEN: Mapping[str, Callable[[Facts], bool]] = {
    "always": lambda f: True,
    "drafts": lambda f: f.drafts,
    "long": lambda f: f.longest > 0,
    "longer": lambda f: f.longest > 1,
    "scripted": lambda f: f.longest > 0 and "Scripted" in f.offers,
    "placed": lambda f: f.longest > 1 and {"Scripted", "Traced"} <= f.offers,
    "drawn": lambda f: f.known.rule in (Rule.RATIO, Rule.ONE_HOT) and f.drafts,
    "several": lambda f: f.honours("n"),
    "filtered": lambda f: any(f.honours(name) for name in ("top_k", "top_p", "min_p")),
}
"""On what the hazards of a clause depend."""


@dataclass(frozen=True, slots=True)
class Form:
    """What evidence that decides a clause looks like; hazards are named by how they begin, with when they belong."""

    kinds: tuple[str, ...]
    fewest: Count
    hazards: tuple[tuple[str, str], ...]

    def due(self, facts: Facts) -> list[str]:
        """The hazards that must be counted under these facts."""
        return [hazard for when, hazard in self.hazards if WHEN[when](facts)]


def _form(kinds: str, fewest: int | Count = 1, **hazards: str) -> Form:
    count: Count = fewest if callable(fewest) else lambda facts: fewest
    named = tuple((when, name) for when, names in hazards.items() for name in names.split(", "))
    assert hazards.keys() <= WHEN.keys(), hazards
    return Form(tuple(kinds.split()), count, named)


def prompts(facts: Facts) -> int:
    return facts.effort.prompts


def histories(facts: Facts) -> int:
    return facts.effort.histories


BOTH = "acceptances, rejections"
FORMS: Mapping[str, Form] = {
    "LIVE-1": _form("occurrences", 0, always="drafts proposed, drafts accepted"),
    "LIVE-2": _form(
        "occurrences",
        0,
        always="first draft rejected, full acceptance",
        longer="partial acceptance",
        scripted="drafts behind a round without",
    ),
    "LIVE-3": _form("values", 3, drafts="rounds with drafts"),
    "GE-1": _form("greedy", prompts, always="outputs across a page's edge", drafts=BOTH),
    "GE-2": _form("greedy", lambda f: max(2, f.effort.prompts // 2), drafts=BOTH),
    "GE-3": _form("greedy", lambda f: f.longest, drafts=BOTH),
    "GE-4": _form("greedy", lambda f: len(greedy_patterns(f.longest)), always=f"{BOTH}, drafts behind a round without"),
    "GE-5": _form("greedy", lambda f: max(3, f.effort.prompts), always="requests served beside another"),
    "GE-6": _form("greedy", lambda f: f.effort.examples // 2, long="rejections"),
    "GE-7": _form("values", lambda f: 2 * f.effort.prompts),
    "GE-8": _form(
        "flips",
        lambda f: 8 * f.effort.prompts,
        always="requests served beside another, requests without speculation beside another",
        drafts=BOTH,
    ),
    "LAW-1": _form("values", lambda f: f.effort.examples),
    "LAW-2": _form("draws", 1, always="numbers drawn", drafts=BOTH, filtered="tokens under a filter"),
    "LAW-3": _form("draws", len(SHAPES), always="bonus tokens", long=BOTH),
    "LAW-4": _form("values draws"),
    "LAW-5": _form("cells", 3),
    "LAW-6": _form("counts", 2),
    "LAW-7": _form("leans", 2),
    "RNG-1": _form(
        "ledger",
        3,
        always="numbers for bonus, requests served beside another",
        drawn="numbers for accept, numbers for residual",
        several="rounds of a second sample",
    ),
    "RNG-2": _form("values", 1, always="requests served beside another"),
    "RNG-3": _form(
        "streams",
        1,
        always="different outputs under different seeds",
        several="different outputs of several samples",
    ),
    "SMP-1": _form("greedy", 4, always="greedy rows served beside sampled ones"),
    "SMP-2": _form(
        "values", 2, always="greedy rows served beside sampled ones", placed="rounds of unlike draft lengths"
    ),
    "SMP-3": _form(
        "draws",
        2,
        always="numbers drawn, greedy rows served beside sampled ones",
        long=BOTH,
        longer="rounds of unlike draft lengths",
        filtered="tokens under a filter",
    ),
    "SMP-4": _form("greedy", 3, always=f"{BOTH}, tokens that their own span decides, accepted lengths"),
    "SMP-5": _form("greedy", lambda f: 3 * (f.longest + 4), long="ends of min_tokens inside a span"),
    "SMP-6": _form("draws", 3, always="numbers drawn, tokens under a penalty", long=BOTH),
    "SMP-7": _form("greedy", 1, always="tokens under a penalty", drafts=BOTH),
    "SMP-8": _form("values", 15),
    "FIN-1": _form("values", 4, always="outputs ended by a stop", drafts="stops in a round with drafts"),
    "FIN-2": _form("values", 4, always="stop on an accepted draft, stop on the bonus token"),
    "FIN-3": _form("values", 4, placed="drafted rounds that the budget kept short"),
    "FIN-4": _form("values", 4, always="requests cancelled before their end"),
    "FIN-5": _form("values", 1, always="outputs ended by a stop", drafts="stops in a round with drafts"),
    "FIN-6": _form("values", 2, scripted="such tokens drafted and accepted"),
    "RWD-1": _form("histories", histories, always="states compared", longer="partial acceptance, full acceptance"),
    "RWD-2": _form("histories", 1, always="states compared, drafted behind undrafted, 0 drafts accepted"),
    "REC-1": _form("histories", histories, always="states compared", longer="partial acceptance, first draft rejected"),
    "REC-2": _form("histories", 1, always="states compared, undrafted behind an acceptance, drafted beside undrafted"),
    "REC-3": _form("histories", 1, always="rounds rejected whole, states compared"),
    "ISO-1": _form("histories", histories, always="served beside another", long="rounds with drafts"),
    "ISO-2": _form("histories", 1, always="served beside another", long="rounds with drafts"),
    "SCH-1": _form("histories", histories, always="preempted, resumed", long="rounds with drafts"),
    "SCH-2": _form(
        "histories", 1, always="preempted while waiting, preempted behind a round", long="rounds with drafts"
    ),
    "SCH-3": _form("values", 5, always="prompts of more than a chunk"),
    "CXL-1": _form("histories", histories, always="cancelled, served beside another", long="rounds with drafts"),
    "CXL-2": _form(
        "histories", 1, always="cancelled while waiting, cancelled behind a round", long="rounds with drafts"
    ),
    "CXL-3": _form("histories", 1, always="cancelled, served beside another"),
    "RES-1": _form("histories", histories, always="accounts closed, idle ticks", long="rounds with drafts"),
    "RES-2": _form("histories", 1, always="prompts begun before, prefix hits"),
    "RES-3": _form("values", 1, always="lengths at which pages were counted"),
    "CKP-1": _form("values"),
    "CKP-2": _form("changes"),
    "CKP-3": _form("changes"),
    "CKP-4": _form("changes"),
    "CKP-5": _form("changes"),
    "DRF-1": _form("drafts", 1, always="rounds of full length", longer="partial acceptances before"),
    "DRF-2": _form("laws", 1, always="laws of a draft"),
    "DRF-3": _form("values", 1, always="rounds with a rejected draft"),
    "NUM-1": _form("greedy", 2),
    "NUM-2": _form("values"),
    "NUM-3": _form("drafts"),
    "NUM-4": _form("values", 3),
    "NUM-5": _form("values", 3),
    "NUM-6": _form("values"),
    "NUM-7": _form("values"),
    "NUM-8": _form("values"),
    "NUM-9": _form("values"),
    "LIM-1": _form("greedy", 2, placed="rounds with less room than K"),
    "LIM-2": _form("values", 6),
    "LIM-3": _form("greedy", 1, always="tokens beyond the drafter's limit"),
    "LIM-4": _form("drafts", 1, always="rounds beyond the drafter's limit"),
    "LIM-5": _form("greedy", lambda f: held(f.known.limits) + 2),
    "LIM-6": _form("greedy"),
    "LIM-7": _form("greedy", 1, always="tokens, rejections"),
    "LIM-8": _form("drafts", 1, always="rounds drafted behind the silence"),
    "GRF-1": _form("values", 2, always="ticks with"),
    "GRF-2": _form("values", 2, always="ticks with"),
    "GRF-3": _form("values", 2, always="ticks with"),
    "GRF-4": _form("values", 2, always="ticks with"),
    "GRF-5": _form("values", 2, always="ticks with"),
    "GRF-6": _form("values", 1, always="captures"),
    "GRF-7": _form("values", 2, always="batches grown past"),
    "TEL-1": _form("values", 4, always="cancelled"),
    "TEL-2": _form("values", 2),
    "TEL-3": _form("values", 2, placed="accepted tokens, correction tokens, bonus tokens"),
    "TEL-4": _form("values", 4, always="cancelled", placed="drafts behind the end, rounds of fewer drafts"),
    "TEL-5": _form("acceptance", 1, always=BOTH),
    "TEL-6": _form("values", 1, always="drafts accepted"),
    "ERR-1": _form("changes", 8),
    "ERR-2": _form("changes"),
}
OPEN = frozenset({Verdict.INCONCLUSIVE, Verdict.VIOLATED})  # for which a case may be enough


def misfits(clause: str, evidence: Mapping[str, Any], verdict: Verdict, facts: Facts) -> list[str]:
    """What the evidence lacks that this verdict on the clause needs; BadFacts where the facts do not say what it needs.

    Of a violation, one case is enough, whatever else did not happen.
    """
    form, cases = FORMS[clause], evidence["cases"]
    if evidence["kind"] not in form.kinds:
        return [f"its evidence is of the kind {evidence['kind']}, the clause gathers {' or '.join(form.kinds)}"]
    if verdict is Verdict.VIOLATED:
        return []
    found, guards = list[str](), evidence["guards"]
    fewest = form.fewest(facts)
    if verdict not in OPEN and len(cases) < fewest:
        found.append(f"its evidence has {len(cases)} cases, the clause gathers {fewest} or more")
    for hazard in form.due(facts):
        if not any(guard["hazard"].startswith(hazard) for guard in guards):
            found.append(f"its evidence does not count {hazard}")
    for guard in guards:
        least = owed(clause, guard["hazard"], facts)
        if guard["needed"] < least:
            found.append(f"its evidence needs {guard['hazard']} {guard['needed']} times, the clause {least} or more")
        outside = "Traced" not in facts.offers or facts.known.limits.max_batch == 1
        if guard["seen"] is None and not outside:
            found.append(f"its evidence does not say how often it saw {guard['hazard']}, though that can be seen")
    found += lenient(clause, cases, facts)
    most = facts.effort.wanted
    if any(case.get("wanted", most) > most for case in cases):
        found.append(f"its evidence is content with a larger bias than {most}, the profile's")
    return found


ELSEWHERE = ("LIM", "NUM")  # chapters that judge decoders of other checkpoints, too, whose claims no header states


def lenient(clause: str, cases: Sequence[Mapping[str, Any]], facts: Facts) -> list[str]:
    """What the evidence excuses although the claims exclude it: a tie, other bits, or a wider envelope."""
    if clause.startswith(ELSEWHERE):
        return []
    greedy, rounds, found = facts.known.greedy, number(facts.known.dtype) is not None, list[str]()
    if any(case.get("bitwise", greedy.bitwise) is not greedy.bitwise for case in cases):
        found.append(f"its evidence is judged as if bits were {'not ' * greedy.bitwise}claimed")
    if any("tie" in case for case in cases) and (greedy.bitwise or not rounds):
        found.append("its evidence excuses a tie, which the claims exclude")
    widest = min(greedy.envelope or inf, inf if rounds else EXACT)
    if clause.startswith("GE-") and any(case.get("envelope", 0.0) > widest for case in cases):
        found.append(f"its evidence has a wider envelope than {widest:.3g} nats, which the claims allow")
    return found
