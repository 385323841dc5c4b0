"""Reasons for SKIPPED, and which of them the header of a report shows to be true or false.

A clause is skipped for what the decoder does not offer or claim, which the header states; or because the decoder
refused, or something about the checkpoints, which only the run has seen. The latter are believed or not.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specqual.contract import Rule, SeedContract

from .clauses import CLAUSES, JUDGE_ONLY
from .facts import BadFacts, Facts
from .verdicts import Profile

Shown = Callable[[Facts, str, str], bool]
"""Whether the facts bear out a reason: (facts, clause, what the sentence says in its place)."""

FIELDS: Mapping[str, str] = {
    "temperature": "LAW-2 LAW-3 LAW-4 LAW-5 LAW-6 LAW-7 RNG-1 RNG-2 RNG-3 SMP-1 SMP-2 SMP-3 SMP-6 DRF-2 TEL-5",
    "seed": "RNG-2 RNG-3 SMP-2",
    "stop_ids": "FIN-1 FIN-2",
    "stop_strings": "FIN-5",
    "logit_bias": "FIN-6 SMP-5",
    "min_tokens": "SMP-5",
    "logprobs": "TEL-3",
}
"""Fields of a request that a clause cannot do without."""
INSIDE: Mapping[str, tuple[str, ...]] = {"LIVE-1": ("Traced",), "LAW-5": ("Scripted", "Taped")}
"""Protocols without which a clause goes on up to some point."""
SAMPLED = FIELDS["temperature"]
PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
FOLLOWED = (Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH)


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence, as a pattern with at most one group; the clauses that may give it, all if there are none named.
    `shown` is None where no header can bear it out."""

    pattern: re.Pattern[str]
    clauses: frozenset[str]
    shown: Shown | None


def _reason(pattern: str, clauses: str = "", shown: Shown | None = None) -> Reason:
    return Reason(re.compile(pattern, re.DOTALL), frozenset(clauses.split()), shown)


REASONS = (
    _reason(
        r"the decoder does not offer (\w+)",
        shown=lambda f, c, n: n not in f.offers and n in (*CLAUSES[c].needs, *INSIDE.get(c, ())),
    ),
    _reason(
        r"the decoder does not claim to honour (\w+)",
        " ".join(FIELDS.values()),
        lambda f, c, n: c in FIELDS.get(n, "").split() and not f.honours(n),
    ),
    _reason("speculation is off", "GE-4 LIVE-2 NUM-5 REC-2 REC-3 RWD-2 SMP-4", lambda f, c, n: not f.longest),
    _reason("no drafter is configured", "LIVE-1 GE-8 LIM-8 TEL-6", lambda f, c, n: not f.drafts),
    _reason(
        "there is no drafter checkpoint",
        " ".join(c for c in CLAUSES if c.startswith(("CKP", "DRF"))) + " LIM-3 LIM-4 LIM-8 NUM-3 TEL-6",
        lambda f, c, n: f.draft is None or (c in ("LIM-3", "LIM-4") and not f.drafts),
    ),
    _reason(
        r"the decoder drafts at most (\d+) tokens, .*",
        "GE-3 GRF-1",
        lambda f, c, n: f.longest < 2 and n == str(f.longest),
    ),
    _reason(
        "the decoder takes one request at a time: .*",
        " ".join(c for c in CLAUSES if c.startswith("GRF")),
        lambda f, c, n: f.known.limits.max_batch < 2,
    ),
    _reason("the decoder claims no output law: its rule is lossy", SAMPLED, lambda f, c, n: f.known.rule is Rule.LOSSY),
    _reason(
        "block verification: .*",
        "LAW-2 LAW-3 LAW-4 LAW-5 RNG-1 SMP-3 SMP-6",
        lambda f, c, n: f.known.rule is Rule.BLOCK,
    ),
    _reason(r"rule ([\w-]+): .*", "TEL-5", lambda f, c, n: f.known.rule == n and f.known.rule not in FOLLOWED),
    _reason(
        "decided exactly by LAW-2 to .*",
        "LAW-6 LAW-7",
        lambda f, c, n: "Taped" in f.offers and f.profile is not Profile.CERTIFY,
    ),
    _reason("the decoder claims no seed contract", "RNG-2 SMP-2", lambda f, c, n: f.known.seed is SeedContract.NONE),
    _reason("the target has no end of sequence", "SMP-5", lambda f, c, n: not f.known.limits.eos_ids),
    _reason("speculation on equals off bit for bit .*", "GE-8", lambda f, c, n: f.known.greedy.bitwise),
    _reason("the decoder does not claim to be bitwise", "NUM-9", lambda f, c, n: not f.known.greedy.bitwise),
    _reason(
        r"the decoder does not claim to be bitwise, and rounding to (\w+) .*",
        "RWD-1 RWD-2 REC-1 REC-2 REC-3",
        lambda f, c, n: not f.known.greedy.bitwise and f.known.dtype == n,
    ),
    _reason(
        "the decoder claims to honour no penalty together with logit_bias, nor all three penalties",
        "SMP-4 SMP-6 SMP-7",
        lambda f, c, n: sum(map(f.honours, PENALTIES)) < (1 if f.honours("logit_bias") else 3),
    ),
    _reason("the decoder refuses: .*"),
    _reason(r"a request of \d+ tokens was refused: .*"),
    _reason("a replay of committed tokens as a prompt was refused"),
    _reason("the decoder does not load the target that this needs: .*", "LAW-5 LAW-6 LIM-1 LIM-2 LIM-3 LIM-4 LIM-7"),
    _reason("speculation cannot be switched off: .*", "GE-2 GE-8 SMP-7"),
    _reason("the decoder does not follow the draft length that it is given", "GE-3"),
    _reason("the decoder owns nothing between rounds: .*", "RES-1 RES-3"),
    _reason("the decoder takes no prefill chunk that it was asked for", "SCH-3"),
    _reason("the decoder has no kernels: .*", "NUM-6 NUM-7 NUM-8 NUM-9"),
    _reason("the decoder has no (?:linear|attention) kernel of its own", "NUM-6 NUM-8"),
    _reason("the decoder loads no quantised target: .*", "NUM-1 NUM-2"),
    _reason("the decoder loads no quantised drafter: .*", "NUM-3"),
    _reason("every token of the vocabulary occurs in the requests", "NUM-4"),
    _reason("the decoder counts no graph_captures: .*", "GRF-6"),
    _reason("the decoder (?:takes no bucket|pads to no bucket, .*)", "GRF-1 GRF-2 GRF-3 GRF-4 GRF-5 GRF-6 GRF-7"),
    _reason("the decoder counts nothing that can be recounted", "TEL-4"),
    _reason(r"the decoder does not count \w+", "TEL-6"),
    _reason("ties of the drafter, or a policy, decide on every output", "TEL-6"),
    _reason("drafts cannot be scripted where no drafter is configured", "LIM-7"),
    _reason("the decoder does not take a context of .*", "LIM-1 LIM-2"),
    _reason("the checkpoint is too large to copy .*", "LIM-1 LIM-2 LIM-3 LIM-4"),
    _reason(
        "the (?:reference does not know this drafter|drafter is of no kind that the contract knows): .*",
        " ".join(c for c in CLAUSES if c.startswith(("CKP", "DRF"))) + " LIM-4 LIM-8 NUM-3 TEL-6",
    ),
    _reason("the target has no tensors", " ".join(c for c in CLAUSES if c.startswith("CKP"))),
    _reason("there is no tokenizer beside the target", "FIN-5"),
    _reason("the reference decoder has no drafter like this one, .*", "LAW-4"),
    _reason("the target has no recurrent layer, or the decoder does not show its state", "REC-1 REC-2"),
    _reason("no prompt was served from what an earlier one left behind", "RES-2"),
)


def known(clause: str, sentence: str) -> tuple[Reason, str] | None:
    """The reason that a clause gives with this sentence and what it says in its place, or None for none of its own."""
    for reason in REASONS:
        found = reason.pattern.fullmatch(sentence)
        if found and (clause in reason.clauses or not reason.clauses) and clause not in JUDGE_ONLY:
            return reason, found[1] if found.re.groups else ""
    return None


def wrong(facts: Facts, clause: str, sentence: str) -> str:
    """What is wrong with a reason for SKIPPED in the light of the facts; empty if nothing is."""
    found = known(clause, sentence)
    if found is None:
        return "gives a reason that this clause does not have"
    reason, place = found
    try:
        return "" if reason.shown is None or reason.shown(facts, clause, place) else "gives a reason that is not so"
    except BadFacts:
        return ""  # no decoder was there to ask


def believed(facts: Facts, clause: str, sentence: str) -> bool:
    """Whether nothing in the report bears this reason out."""
    found = known(clause, sentence)
    return found is None or found[0].shown is None or facts.claims is None
