"""LIVE: speculation really ran, in every shape of round; else the other chapters would pass without a test."""

from dataclasses import replace
from typing import Any

from specqual.conformance.chapter import clause
from specqual.conformance.drive import Answer, NotOffered, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import basic_requests, greedy_requests
from specqual.conformance.hazards import drafted, undrafted
from specqual.conformance.lab import Lab, scripted
from specqual.conformance.scripts import greedy_patterns
from specqual.contract import Round, Sampling, Scripted


def probe(lab: Lab) -> list[Answer]:
    """Greedy and, where honoured, sampled requests with the configured drafter."""
    wanted = basic_requests(lab)[:3]
    if lab.honours("temperature"):
        wanted += [
            replace(wanted[0], sampling=Sampling(temperature=1.0), max_tokens=lab.effort.span, seed=lab.run.seed)
        ]
    return [lab.answer(request) for request in wanted]


def behind_first(answers: list[Answer]) -> list[Round]:
    """Every round behind a first one."""
    return [r for answer in answers for r in answer.rounds or () if r.start >= len(answer.request.prompt)]


def shapes(answers: list[Answer]) -> list[list[int]]:
    """Per round behind a first one: tokens generated before it, drafts, and how many of them were accepted."""
    return [
        [r.start + 1 - len(answer.request.prompt), len(r.proposals), r.accepted]
        for answer in answers
        for r in behind_first([answer])
    ]


@clause("LIVE-1")
def test_speculation_ran(lab: Lab) -> Evidence:
    if not lab.drafts:
        raise NotOffered("no drafter is configured")
    if lab.longest:  # else there is nothing to trace
        lab.require("Traced")
    answers = probe(lab)
    rounds = behind_first(answers)
    proposed, accepted = sum(len(r.proposals) for r in rounds), sum(r.accepted for r in rounds)
    forwards = sum(r.target_forwards for r in rounds)
    emitted = sum(len(r.committed) for r in rounds)
    notes: dict[str, Any] = {"tokens per target forward": round(emitted / forwards, 3)} if forwards else {}
    notes["rounds"] = shapes(answers)
    guards = [Guard("drafts proposed", proposed), Guard("drafts accepted", accepted)]
    return Evidence("occurrences", guards=guards, notes=notes)


@clause("LIVE-2")
def test_rounds_of_every_shape_occur(lab: Lab) -> Evidence:
    if not lab.longest:
        raise NotOffered("speculation is off")
    answers = probe(lab)
    if isinstance(lab.decoder, Scripted):
        request = greedy_requests(lab, "LIVE", 1, lab.effort.span)[0]
        patterns = greedy_patterns(lab.longest)
        for name in ("perfect", "wrong", "wrong at j", "sometimes empty"):
            with scripted(lab.decoder, patterns[name].script(lab, request)):
                answers.append(serve(lab.decoder, [request])[0])
    rounds = behind_first(answers)
    drafts = [r for r in rounds if r.proposals]
    shapes = {
        "first draft rejected": sum(r.accepted == 0 for r in drafts),
        "partial acceptance": sum(0 < r.accepted < len(r.proposals) for r in drafts),
        "full acceptance": sum(r.accepted == len(r.proposals) for r in drafts),
        "drafts behind a round without": undrafted(answers),
    }
    if lab.longest < 2:
        del shapes["partial acceptance"]
    if not isinstance(lab.decoder, Scripted):
        del shapes["drafts behind a round without"]  # some drafters have no such rounds, and nobody can ask for one
    return Evidence("occurrences", guards=[Guard(name, count) for name, count in shapes.items()])


@clause("LIVE-3")
def test_the_trace_is_a_history_of_the_output(lab: Lab) -> Evidence:
    cases: list[Case] = []

    def equal(what: str, expected: object, actual: object) -> None:
        cases.append({"what": what, "expected": expected, "actual": actual})

    answers = probe(lab)
    for number, answer in enumerate(answers):
        tokens, where = list(answer.request.prompt), f"request {number}"
        for index, r in enumerate(answer.rounds or ()):
            at = f"{where}, round {index}"
            equal(f"{at}: start is the anchor's place", len(tokens) - 1, r.start)
            equal(f"{at}: anchor", tokens[-1], r.anchor)
            equal(f"{at}: drafts are at most K", True, len(r.proposals) <= lab.longest)
            equal(f"{at}: one q for each draft", len(r.proposals), len(r.q))
            kept = min(r.accepted, len(r.committed))
            equal(f"{at}: accepted drafts are committed", list(r.proposals[:kept]), list(r.committed[:kept]))
            full = len(r.committed) == r.accepted + 1
            ended = index == len(answer.rounds or ()) - 1
            equal(f"{at}: commits the accepted drafts and one token", True, full or (ended and len(r.committed) > 0))
            equal(f"{at}: commits no more than that", True, len(r.committed) <= r.accepted + 1)
            tokens += r.committed
        equal(f"{where}: committed tokens are the output", list(answer.output), tokens[len(answer.request.prompt) :])
    return Evidence("values", cases, [Guard("rounds with drafts", len(drafted(answers)))] if lab.drafts else ())
