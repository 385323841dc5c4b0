"""TEL: what the decoder tells of itself is what it did: usage, streams, log-probabilities, counters, acceptance."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from random import Random

from specqual.conformance.acceptance import judged
from specqual.conformance.chapter import clause
from specqual.conformance.drafter import DraftTwin
from specqual.conformance.draws import slack_of
from specqual.conformance.drive import Answer, NotOffered, guarded, serve, stray
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import basic_requests, greedy_requests
from specqual.conformance.hazards import batch, beside, traced
from specqual.conformance.lab import Lab, scheduled, scripted
from specqual.conformance.scripts import Pattern, continuation, greedy_patterns, sampled
from specqual.conformance.seams import seam
from specqual.conformance.sizes import takes
from specqual.conformance.telemetry import cancelling, charged, counted, joined, moved, roles, told
from specqual.conformance.ties import tie_of
from specqual.conformance.walk import walk
from specqual.contract import (
    FinishReason,
    Request,
    Rule,
    Sampling,
    Schedulable,
    Script,
    Scripted,
    SeedContract,
)


@contextmanager
def drafted(lab: Lab, pattern: Pattern, request: Request) -> Iterator[str]:
    """Drafts by this pattern for a request where drafts can be scripted, else the configured drafter's; which it is."""
    if isinstance(lab.decoder, Scripted) and lab.longest:
        with scripted(lab.decoder, pattern.script(lab, request)):
            yield "scripted drafts"
    else:
        yield "the configured drafter"


def stopped(lab: Lab, base: Request) -> list[Request]:
    """The request with a stop id at each place of its first span, where stop ids are honoured."""
    if not lab.honours("stop_ids") or not lab.has("stops"):
        return []
    known = continuation(lab, base)
    return [replace(base, stop_ids=(known[place],)) for place in range(1, min(len(known), lab.longest + 2))]


@clause("TEL-1")
def test_usage_is_a_recount_of_the_tokens(lab: Lab) -> Evidence:
    cases, cut, ended, cancelled = list[Case](), 0, 0, 0
    wanted = greedy_requests(lab, "TEL-1", 3, lab.effort.span)
    if lab.honours("n"):
        wanted[0] = replace(wanted[0], n=3)
        if lab.honours("temperature"):
            wanted[1] = replace(wanted[1], n=2, sampling=Sampling(temperature=1.0), seed=lab.run.seed)
    for place, answer in enumerate(serve(lab.decoder, wanted)):
        cases += charged(f"request {place} of a batch, n {answer.request.n}", answer)
    base = replace(wanted[2], n=1)
    for request in stopped(lab, base):
        with drafted(lab, greedy_patterns(lab.longest)["perfect"], base):
            answer = serve(lab.decoder, [request])[0]
        cases += charged(f"stop id {request.stop_ids[0]}", answer)
        cut += answer.reasons == (FinishReason.STOP,)
        ended += sum(r.accepted > len(r.committed) for r in answer.rounds or ())
    long = replace(wanted[0], max_tokens=lab.effort.tokens)  # the last to come, and the one that goes
    for ticks, lag in moments(lab):
        with lagging(lab, lag):
            for place, answer in enumerate(cancelling(lab, [*wanted[1:], long], ticks)):
                cases += charged(f"request {place} where the last was cancelled after {ticks} ticks", answer)
                cancelled += under_way(answer)
    guards = [Guard("cancelled under way", cancelled)]
    guards += [Guard("stopped", cut)] if lab.honours("stop_ids") else []
    if lab.honours("stop_ids") and isinstance(lab.decoder, Scripted) and lab.longest > 1:
        guards.append(traced(lab, "drafts behind the end", ended))
    return Evidence("values", cases, guards)


def under_way(answer: Answer) -> bool:
    """Whether a request was cancelled before it had said everything."""
    said = sum(map(len, answer.samples))
    return FinishReason.CANCELLED in answer.reasons and said < answer.request.max_tokens * answer.request.n


def moments(lab: Lab) -> list[tuple[int, int]]:
    """Numbers of ticks after which to cancel, each with a commit lag that the decoder has."""
    if not lab.has("cancelled-beside-others"):
        return []
    lags = (0, 1) if isinstance(lab.decoder, Schedulable) and takes(lab.decoder, lag=1) else (0,)
    return [(ticks, lag) for lag in lags for ticks in ((1, 2, 3, 5) if lab.thorough else (2 + lag,))]


def lagging(lab: Lab, lag: int) -> AbstractContextManager[object]:
    """Let the decoder commit so many ticks late for the body, where it can be told to."""
    return scheduled(lab.decoder, lag=lag) if isinstance(lab.decoder, Schedulable) else nullcontext()


@clause("TEL-2")
def test_joined_deltas_are_the_output(lab: Lab) -> Evidence:
    cases, several, entries = list[Case](), 0, 0
    wanted = greedy_requests(lab, "TEL-2", 3, lab.effort.span)
    if lab.honours("n"):
        wanted[1] = replace(wanted[1], n=2)
        if lab.honours("temperature", "seed") and lab.claims.seed is not SeedContract.NONE:
            wanted.append(replace(wanted[2], n=3, sampling=Sampling(temperature=1.0), seed=lab.run.seed + 1))
    quiet = [serve(lab.decoder, [request])[0] for request in wanted]
    if lab.honours("logprobs") and lab.has("log-probabilities"):
        wanted = [replace(request, logprobs=2 * (place % 2)) for place, request in enumerate(wanted)]
    answers = batch(lab, wanted)
    for place, (alone, answer) in enumerate(zip(quiet, answers, strict=True)):
        greedy = answer.request.sampling.greedy
        for sample, deltas in enumerate(joined(answer)):
            what = f"request {place}, sample {sample}"
            several += any(len(delta.ids) > 1 for delta in deltas)
            entries += sum(len(delta.logprobs or ()) for delta in deltas)
            if answer.rounds is not None:
                committed = [token for r in answer.rounds_of(sample) for token in r.committed]
                tokens = list(answer.samples[sample])
                cases.append({"what": f"{what}: what its rounds committed", "expected": committed, "actual": tokens})
            if greedy or lab.must_repeat:
                expected, actual = list(alone.samples[sample]), list(answer.samples[sample])
                tie = tie_of(lab, answer.request, expected, actual) if greedy else {}
                label = f"{what}: the same alone, without log-probabilities"
                cases.append({"what": label, "expected": expected, "actual": actual, **tie})
    guards = [beside(lab, [answers])]
    guards += [Guard("log-probabilities", entries)] if lab.honours("logprobs") else []
    guards += [traced(lab, "deltas of several tokens", several)] if lab.drafts else []
    return Evidence("values", cases, guards, seam(lab, "a trace"))


@clause("TEL-3")
def test_log_probabilities_are_the_targets_at_every_place(lab: Lab) -> Evidence:
    lab.require_fields("logprobs")
    cases, seen, most = list[Case](), list[str](), min(3, lab.claims.limits.vocab_size)
    base = replace(greedy_requests(lab, "TEL-3", 1, lab.effort.span)[0], logprobs=most)
    answers: list[tuple[str, Answer]] = []
    for name in ("wrong at j", "perfect"):
        with drafted(lab, greedy_patterns(lab.longest)[name], replace(base, logprobs=None)) as drafts:
            answers.append((f"greedy, {drafts} {name}", serve(lab.decoder, [base])[0]))
        if drafts != "scripted drafts":
            break
    if lab.honours("temperature"):
        sampling = Sampling(temperature=0.8)
        sampling = replace(sampling, top_k=5) if lab.honours("top_k") else sampling
        sampling = replace(sampling, logit_bias=((1, 2.0),)) if lab.honours("logit_bias") else sampling
        drawn = replace(base, sampling=sampling, seed=lab.run.seed, n=2 if lab.honours("n") else 1)
        answers += [("sampled", answer) for answer in serve(lab.decoder, [drawn, replace(base, max_tokens=5)])]
    for what, answer in answers:
        cases += told(lab, what, answer)
        seen += [role for sample in range(answer.request.n) for role in roles(answer.rounds_of(sample))]
    kinds = ("accepted", "correction", "bonus") if isinstance(lab.decoder, Scripted) else ("accepted", "correction")
    guards = [traced(lab, f"{role} tokens", seen.count(role)) for role in kinds if lab.speculative]
    return Evidence("values", cases, guards, seam(lab, "a trace", "scripted drafts"))


@clause("TEL-4")
def test_counters_move_by_what_was_done(lab: Lab) -> Evidence:
    cases, ended, short, drafts, cancelled, longest = list[Case](), 0, 0, 0, 0, lab.longest
    base = greedy_requests(lab, "TEL-4", 1, lab.effort.span)[0]

    def note(what: str, found: tuple[Sequence[Answer], dict[str, int]]) -> None:
        nonlocal ended, short, drafts, cancelled
        answers, counters = found
        cases.extend(counted(what, answers, counters, longest))
        rounds = [r for answer in answers for r in answer.rounds or ()]
        ended += sum(r.accepted > len(r.committed) for r in rounds)
        short += sum(0 < len(r.proposals) < longest for r in rounds)
        drafts += counters.get("draft_tokens", 0)
        cancelled += sum(map(under_way, answers))

    names = (
        ("perfect", "wrong at j", "changing K", "sometimes empty") if isinstance(lab.decoder, Scripted) else ("own",)
    )
    patterns = greedy_patterns(longest)
    for name in names:
        with drafted(lab, patterns.get(name, patterns["perfect"]), base) as whose:
            note(f"{whose} {name}", moved(lab, lambda: serve(lab.decoder, [base])))
    for request in stopped(lab, base):
        with drafted(lab, patterns["perfect"], base):
            what = f"stop id {request.stop_ids[0]}"
            note(what, moved(lab, lambda r=request: serve(lab.decoder, [r])))  # type: ignore[misc]
    three = greedy_requests(lab, "TEL-4/batch", 3, lab.effort.span)
    three[-1] = replace(three[-1], max_tokens=lab.effort.tokens)
    for ticks, lag in moments(lab):
        with lagging(lab, lag):
            found = moved(lab, lambda t=ticks: cancelling(lab, three, t))  # type: ignore[misc]
            note(f"a batch, one of it cancelled after {ticks} ticks with a commit lag of {lag}", found)
    if not cases:
        raise NotOffered("the decoder counts nothing that can be recounted")
    guards = [Guard("cancelled under way", cancelled)]
    if lab.speculative and "draft_tokens" in guarded("counters", lab.decoder.counters):
        guards.append(Guard("drafts, as counted", drafts))
    if isinstance(lab.decoder, Scripted) and longest > 1:
        hazards = {"rounds of fewer drafts": short}
        hazards |= {"drafts behind the end": ended} if lab.honours("stop_ids") else {}
        guards += [traced(lab, hazard, seen) for hazard, seen in hazards.items()]
    return Evidence("values", cases, guards, seam(lab, "a trace", "scripted drafts"))


@clause("TEL-5")
def test_measured_acceptance_is_the_closed_form(lab: Lab) -> Evidence:
    rule = lab.sampled_rule
    if rule not in (Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH):
        raise NotOffered(f"rule {rule}: what one draft's chance is does not follow from p and q alone")
    seeds = lab.random("TEL-5")
    wanted = [
        replace(request, sampling=Sampling(temperature=1.0), seed=seeds.randrange(2**32))
        for request in greedy_requests(lab, "TEL-5", 3 * lab.effort.prompts, lab.effort.tokens)
    ]
    served = [("the configured drafter", serve(lab.decoder, wanted))] if lab.drafts else []
    if isinstance(lab.decoder, Scripted) and lab.longest:
        for shape in ("far", "certain"):
            answers = list[Answer]()
            for request in (replace(request, max_tokens=lab.effort.span) for request in wanted[: lab.effort.prompts]):
                with scripted(lab.decoder, drawing(lab, request, shape, seeds)):
                    answers += serve(lab.decoder, [request])
            served.append((f"scripted drafts {shape}", tuple(answers)))
    cases, notes, alpha = list[Case](), dict[str, object](), lab.budget.take("TEL-5")
    for what, replies in served:
        wrong = next(filter(None, (stray(answer, lab.judge.target.vocab_size) for answer in replies)), None)
        if wrong is not None:
            return Evidence("acceptance", [{"what": f"{rule}, {what}", "stray": wrong}])
    for what, replies in served:
        found = list[tuple[int, bool, float]]()
        for answer in replies:
            lab.judge.forward((*answer.request.prompt, *answer.output))  # one pass serves every draft
            found += judged(rule, lab.judge.law, answer)
        notes[f"acceptance per slot, {what}: measured, closed form"] = by_slot(found)
        tokens = sum(answer.request.max_tokens for answer in replies)
        cases += [
            {
                "what": f"{rule}, {what}, slot {slot + 1}",
                "slot": slot,
                "accepted": [int(hit) for at, hit, _ in found if at == slot],
                "chance": [chance for at, _, chance in found if at == slot],
                "planned": -(-tokens // (slot + 1)),  # a round that comes so far commits as many tokens
                "alpha": alpha,
                "slack": slack_of(lab),
                "wanted": lab.effort.wanted,
            }
            for slot in range(lab.longest)
        ]
    hits = [hit for case in cases for hit in case["accepted"]]
    guards = [Guard("acceptances", hits.count(1)), Guard("rejections", hits.count(0))]
    return Evidence("acceptance", cases, guards, {**notes, **seam(lab, "a trace", "scripted drafts")})


@clause("TEL-6")
def test_as_many_drafts_are_accepted_as_of_the_reference_drafter(lab: Lab) -> Evidence:
    if not lab.drafts:
        raise NotOffered("no drafter is configured")
    twin, cases, open_, longest = DraftTwin.of(lab), list[Case](), 0, lab.longest
    for place, request in enumerate(basic_requests(lab)):
        (answer,), found = moved(lab, lambda r=request: serve(lab.decoder, [r]))  # type: ignore[misc]
        names = [name for name in ("drafted_rounds", "draft_tokens", "accepted_tokens") if name not in found]
        if names:
            raise NotOffered(f"the decoder does not count {names[0]}")
        short = longest * found["drafted_rounds"] - found["draft_tokens"]  # near the end, one token less a round
        fewer = short > longest * (longest - 1) // 2 or not all(
            r.policy.get("selector", 1) for r in answer.rounds or ()
        )
        along = None if fewer else walk(twin, request, answer.output)
        if along is None:
            open_ += 1
            continue
        what = f"request {place}: drafted rounds, accepted drafts along {len(answer.output)} tokens"
        seen = [found["drafted_rounds"], found["accepted_tokens"]]
        cases.append({"what": what, "expected": [along.rounds, along.accepted], "actual": seen})
    if not cases:
        raise NotOffered("ties of the drafter, or a policy, decide on every output")
    accepted = sum(int(case["expected"][1]) for case in cases)
    return Evidence("values", cases, [Guard("drafts accepted", accepted)], {"left out": open_, "seam": "counters"})


def drawing(lab: Lab, request: Request, shape: str, seeds: Random) -> Script:
    """A drafter in a known relation to the target's law of this request."""
    return sampled(lambda ids: lab.judge.law(request, ids[len(request.prompt) :]), shape, seeds)


def by_slot(found: Sequence[tuple[int, bool, float]]) -> list[list[float]]:
    """Measured mean and closed form of every slot of a round."""
    slots = sorted({slot for slot, _, _ in found})
    rows = [[(hit, chance) for at, hit, chance in found if at == slot] for slot in slots]
    return [[round(sum(column) / len(row), 4) for column in zip(*row, strict=True)] for row in rows]
