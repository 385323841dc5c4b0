"""Evidence: what a clause has seen, as plain JSON, and the pure functions that turn it into a verdict.

A verdict is never stored without the evidence that it follows from: `specqual verify` calls the same `decide`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import comb, exp, isfinite, log
from typing import Any

from . import statistics
from .verdicts import Decision, Verdict

Case = dict[str, Any]


class MalformedEvidence(ValueError):
    """Evidence that no clause of this suite could have recorded."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A hazard that the clause is about: seen fewer than `needed` times, the clause is INCONCLUSIVE."""

    hazard: str
    seen: int
    needed: int = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Cases of one kind, with the hazards that must have occurred for them to mean anything.

    `notes` are shown and decide nothing.
    """

    kind: str
    cases: Sequence[Case] = ()
    guards: Sequence[Guard] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def _first(found: Iterable[tuple[int, int | None, str]]) -> Decision | None:
    for case, place, detail in found:
        return Decision(Verdict.VIOLATED, detail, case=case, place=place)
    return None


# -- greedy: every token under its own prefix ------------------------------------------------------------------------


def _wrong_tokens(cases: Sequence[Case]) -> Iterable[tuple[int, int | None, str]]:
    for index, case in enumerate(cases):
        envelope = float(case["envelope"])
        columns = zip(case["output"], case["argmax"], case["logprob"], case["best"], case["runner_up"], strict=True)
        for place, (token, argmax, logprob, best, runner_up) in enumerate(columns):
            if token == argmax:
                continue
            if logprob is None:
                yield index, place, f"token {place} is {token}, which is no token of the vocabulary"
                continue
            regret, margin = best - logprob, best - runner_up
            if regret > envelope or margin > envelope:
                yield (
                    index,
                    place,
                    f"token {place} is {token} where the target's is {argmax}: {regret:.6g} nats worse under its own "
                    f"prefix, margin {margin:.6g}, and rounding explains at most {envelope:.3g}",
                )
        emitted = len(case["output"])
        if emitted < case["max_tokens"] and not (emitted and case["output"][-1] in case["ending"]):
            yield (
                index,
                None,
                f"{case['label']}: ended after {emitted} of {case['max_tokens']} tokens, though none ends it",
            )
        plain = case.get("plain")
        if plain is not None and case["bitwise"] and plain != case["output"]:
            pairs = zip(plain, case["output"], strict=False)
            place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain), len(case["output"])))
            yield index, place, f"{case['label']}: differs from {case['against']} at token {place}; bitwise was claimed"


def _greedy(cases: Sequence[Case]) -> Decision:
    wrong = _first(_wrong_tokens(cases))
    if wrong is not None:
        return wrong
    tokens = sum(len(case["output"]) for case in cases)
    ties = sum(t != a for case in cases for t, a in zip(case["output"], case["argmax"], strict=True))
    if ties:
        worst = max(b - t for case in cases for b, t in zip(case["best"], case["logprob"], strict=True))
        envelope = max(float(case["envelope"]) for case in cases)
        detail = f"{ties} of {tokens} tokens are ties, worst regret {worst:.3g} nats within {envelope:.3g}"
        return Decision(Verdict.TIE_EXPLAINED, detail)
    return Decision(Verdict.EXACT, f"{tokens} tokens of {len(cases)} outputs, regret zero everywhere")


# -- values: what was expected against what was seen -----------------------------------------------------------------


def distance(expected: Any, actual: Any) -> float:
    """Largest difference of two JSON values with the same shape; infinite where anything but a float differs."""
    if isinstance(expected, float) and isinstance(actual, int | float) and not isinstance(actual, bool):
        return abs(expected - actual) if isfinite(actual) else float("inf")
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return max((distance(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)
    return 0.0 if type(expected) is type(actual) and expected == actual else float("inf")


def short(value: Any, limit: int = 160) -> str:
    """A value in at most `limit` characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _values(cases: Sequence[Case]) -> Decision:
    off = [distance(case["expected"], case["actual"]) for case in cases]
    for index, (case, difference) in enumerate(zip(cases, off, strict=True)):
        if difference > float(case.get("tolerance", 0.0)):
            amount = f" (differs by {difference:.3g})" if isfinite(difference) else ""
            detail = f"{case['what']}: expected {short(case['expected'])}, got {short(case['actual'])}{amount}"
            return Decision(Verdict.VIOLATED, detail, case=index)
    worst = max(off, default=0.0)
    if worst > 0:
        return Decision(Verdict.HOLDS, f"{len(cases)} comparisons, largest difference {worst:.3g}", delta=worst)
    return Decision(Verdict.EXACT, f"{len(cases)} comparisons, all equal")


# -- draws: decisions and the random numbers they must follow from ---------------------------------------------------


def _misdrawn(decision: Case) -> tuple[float, str]:
    """How far (in probability) a decision is from the one its number asks for, and what it should have been."""
    if decision["u"] is None:
        return float("inf"), "no random number of its own was read"
    u = float(decision["u"])
    if decision["purpose"] == "accept":
        p, q = float(decision["p"]), float(decision["q"])
        right = u * q < p
        wanted = f"u·q = {u * q:.9g} {'<' if right else '≥'} p = {p:.9g} {'accepts' if right else 'rejects'} it"
        return (0.0 if right == decision["accepted"] else max(abs(u * q - p), 1e-300)), wanted
    low, high = float(decision["low"]), float(decision["high"])
    wanted = f"u = {u:.9g} is outside the token's interval [{low:.9g}, {high:.9g})"
    if high <= low:
        return float("inf"), wanted + ", which is empty"
    return max(low - u, u - high if u > high else 0.0, 1e-300 if u == high else 0.0, 0.0), wanted


def _draws(cases: Sequence[Case]) -> Decision:
    total = ties = 0
    for index, case in enumerate(cases):
        slack = float(case["slack"])
        for place, decision in enumerate(case["decisions"]):
            total += 1
            off, wanted = _misdrawn(decision)
            allowed = float(decision.get("slack", slack))
            undecided = allowed >= 1  # nothing but rounding was left to draw from
            if decision["u"] is None or (off > allowed and not undecided):
                what = f"{decision['purpose']} of token {decision['token']} at position {decision['position']}"
                return Decision(Verdict.VIOLATED, f"{what}: {wanted}", case=index, place=place)
            ties += off > 0
    if ties:
        return Decision(Verdict.TIE_EXPLAINED, f"{ties} of {total} decisions lie within rounding of their edge")
    return Decision(Verdict.EXACT, f"{total} decisions follow from their numbers")


# -- counts: how often each cell of a law was seen -------------------------------------------------------------------


def _counts(cases: Sequence[Case]) -> Decision:
    share = [float(case["alpha"]) / len(cases) for case in cases]
    tests = [
        statistics.test(case["p"], case["counts"], alpha, float(case["slack"]))
        for case, alpha in zip(cases, share, strict=True)
    ]
    for index, (case, test) in enumerate(zip(cases, tests, strict=True)):
        if test.rejected is not None:
            return Decision(Verdict.VIOLATED, f"{case['label']}: {test.rejected}", case=index)
    bias, samples = max(test.bound for test in tests), sum(test.samples for test in tests)
    visible = max(test.visible for test in tests)
    detail = f"{samples} samples; a bias of {visible:.3g} (total variation) or more would have been seen"
    if bias > max(float(case["wanted"]) for case in cases):
        return Decision(Verdict.INCONCLUSIVE, f"{detail}; the bias is only known to be at most {bias:.3g}")
    return Decision(Verdict.HOLDS, detail, delta=bias)


# -- ledger: which numbers were read, and for what -------------------------------------------------------------------


def _ledger(cases: Sequence[Case]) -> Decision:
    seen: dict[str, int] = {}
    for index, case in enumerate(cases):
        for key in case["read"]:
            if key in seen and not (case["repeatable"] and key.endswith("/bonus")):
                detail = (
                    f"{key} (seed/sample/round/position/purpose) was read twice: one number would decide two things"
                )
                return Decision(Verdict.VIOLATED, detail, case=index)
            seen[key] = index
    for index, case in enumerate(cases):
        missing = sorted(set(case["required"]) - set(case["read"]))
        if missing:
            detail = (
                f"{missing[0]} (seed/sample/round/position/purpose) was never read, so another number decided there"
            )
            return Decision(Verdict.VIOLATED, detail, case=index)
    return Decision(Verdict.EXACT, f"{len(seen)} numbers, each read for one decision, none missing")


# -- streams: outputs of random streams, and which of them must be one and which must not --------------------------


def _streams(cases: Sequence[Case]) -> Decision:
    """Whether equal outputs within a family of streams are more than chance.

    That any g of n streams meet in an output with P(output)^(g - 1) < c happens at a rate below comb(n, g)·c, so c is
    alpha, shared among families and sizes g, by that number.
    """
    undecided = False
    for index, case in enumerate(cases):
        names, outputs, families = case["names"], case["outputs"], case["families"]
        for one, other in case["equal"]:
            if outputs[one] != outputs[other]:
                detail = f"{names[one]} and {names[other]} are one stream, and their outputs differ"
                return Decision(Verdict.VIOLATED, detail, case=index)
        for family in families:
            share = float(case["alpha"]) / len(cases) / len(families) / (len(family) - 1)
            groups = [[other for other in family if outputs[other] == outputs[one]] for one in family]
            for group in groups:
                chance = (len(group) - 1) * (case["logprob"][group[0]] or 0.0)
                if chance < log(share / comb(len(family), len(group))):
                    same = " and ".join(names[one] for one in group)
                    detail = f"{same} have the same output, and that by chance with probability {exp(chance):.2g}"
                    return Decision(Verdict.VIOLATED, detail, case=index)
            undecided |= len(groups[0]) == len(family)
    if undecided:
        return Decision(Verdict.INCONCLUSIVE, "the target is so certain here that equal outputs are no surprise")
    return Decision(Verdict.EXACT, "outputs of different streams are no more alike than chance has it")


# -- changes: what must be refused by name, what must make a difference, and what must make none ---------------------


def _changes(cases: Sequence[Case]) -> Decision:
    for index, case in enumerate(cases):
        raised, expect = case["raised"], case["expect"]
        wrong = None
        if expect == "refused":
            if raised is None:
                wrong = "was accepted without a word"
            elif case["types"] and raised["type"] not in case["types"]:
                wrong = f"raised {raised['type']} ({short(raised['text'])}), expected {' or '.join(case['types'])}"
            elif case["field"] not in raised["text"]:
                wrong = f"the error does not name {case['field']}: {short(raised['text'])}"
        elif raised is not None and (expect == "same" or case["field"] not in raised["text"]):
            wrong = f"raised {raised['type']}: {short(raised['text'])}"
        elif raised is None and case["effect"] is not (expect == "used"):
            wrong = "makes no difference" if expect == "used" else "makes a difference"
        if wrong is not None:
            return Decision(Verdict.VIOLATED, f"{case['what']}: {wrong}", case=index)
    refused = sum(case["raised"] is not None for case in cases)
    return Decision(Verdict.EXACT, f"{len(cases)} changes, {refused} refused by name, the others as they must be")


def _occurrences(cases: Sequence[Case]) -> Decision:
    return Decision(Verdict.EXACT, "every hazard occurred")


KINDS: dict[str, Callable[[Sequence[Case]], Decision]] = {
    "greedy": _greedy,
    "values": _values,
    "draws": _draws,
    "counts": _counts,
    "ledger": _ledger,
    "streams": _streams,
    "changes": _changes,
    "occurrences": _occurrences,
}


def decide(evidence: Mapping[str, Any]) -> Decision:
    """The verdict that follows from evidence in its JSON form; MalformedEvidence if it has none of the known forms."""
    try:
        decision = KINDS[evidence["kind"]](evidence["cases"])
        guards = [Guard(**guard) for guard in evidence["guards"]]
        short_of = [guard for guard in guards if guard.seen < guard.needed]
        empty = not evidence["cases"] and evidence["kind"] != "occurrences"
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise MalformedEvidence(f"evidence: {type(error).__name__}: {error}") from None
    if decision.verdict is Verdict.VIOLATED:
        return decision
    if short_of:
        missing = ", ".join(f"{guard.hazard} ({guard.seen} of {guard.needed})" for guard in short_of)
        return Decision(Verdict.INCONCLUSIVE, f"never put to the test: {missing}; seen so far: {decision.detail}")
    if empty:
        return Decision(Verdict.INCONCLUSIVE, "no case was recorded")
    if guards and evidence["kind"] == "occurrences":
        return Decision(Verdict.EXACT, ", ".join(f"{guard.hazard} {guard.seen}×" for guard in guards))
    return decision
