"""Recounts: what a decoder says of itself beside what its events and its trace come to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from specqual.contract import Counted, Request, Round, Tokens

from .drive import Answer, guarded, serve_any
from .evidence import Case
from .judge import LOWEST, log_softmax
from .lab import Lab


def charged(what: str, answer: Answer) -> list[Case]:
    """Usage and number of reasons against the tokens that came and the samples that were asked for."""
    usage, emitted = answer.usage, sum(map(len, answer.samples))
    assert usage is not None
    seen = [usage.prompt_tokens, usage.completion_tokens, len(answer.reasons)]
    return [
        {
            "what": f"{what}: prompt tokens, completion tokens, reasons",
            "expected": [len(answer.request.prompt), emitted, answer.request.n],
            "actual": seen,
        }
    ]


def cancelling(lab: Lab, requests: Sequence[Request], after: int) -> tuple[Answer, ...]:
    """Serve these requests together and cancel the last after so many ticks, if it has not ended by then."""

    def cancel(tick: int, ids: Sequence[int]) -> None:
        if tick == after - 1:
            try:
                lab.decoder.cancel(ids[-1])
            except KeyError:
                return  # one tick was enough for it

    return serve_any(lab.decoder, requests, on_tick=cancel)


def joined(answer: Answer) -> list[list[Tokens]]:
    """The deltas of each sample, in order."""
    return [[delta for delta in answer.told if delta.sample == sample] for sample in range(answer.request.n)]


def roles(rounds: Sequence[Round]) -> Iterator[str]:
    """What each output token of a sample was: of an undrafted round, an accepted draft, a correction, a bonus."""
    for r in rounds:
        kept = min(r.accepted, len(r.committed))
        yield from ["accepted"] * kept
        if len(r.committed) > kept:
            last = "correction" if r.accepted < len(r.proposals) else "bonus"
            yield last if r.proposals else "undrafted"


def told(lab: Lab, what: str, answer: Answer) -> list[Case]:
    """The log-probabilities of every output token, and its list of the best, against the reference's raw law."""
    wanted, cases, tolerance = answer.request.logprobs, list[Case](), lab.envelope()
    assert wanted is not None
    for sample, deltas in enumerate(joined(answer)):
        output, entries = answer.samples[sample], [entry for delta in deltas for entry in delta.logprobs or ()]
        where = f"{what}, sample {sample}"
        counts = {"expected": [len(delta.ids) for delta in deltas]}
        counts["actual"] = [len(delta.logprobs or ()) for delta in deltas]
        cases.append({"what": f"{where}: entries of each delta", **counts})
        kinds = list(roles(answer.rounds_of(sample))) or ["token"] * len(output)
        raw = lab.judge.logits((*answer.request.prompt, *output))[len(answer.request.prompt) - 1 :]
        for place, (token, entry, role) in enumerate(zip(output, entries, kinds, strict=False)):
            logp = [max(float(value), LOWEST) for value in log_softmax(raw[place])]
            best, ids = sorted(logp, reverse=True)[:wanted], [i for i, _ in entry.top]
            stated = [max(float(value), LOWEST) for _, value in entry.top]
            legal = [logp[i] if 0 <= i < len(logp) else None for i in ids]
            falling = all(one >= other for one, other in pairwise(stated))
            cases.append(
                {
                    "what": f"{where}, token {place} ({role}): log-probability, the best {wanted}, those listed, order",
                    "expected": [logp[token], best, legal, [True, wanted]],
                    "actual": [max(float(entry.token), LOWEST), stated, stated, [falling, len(set(ids))]],
                    "tolerance": tolerance,
                }
            )
    return cases


def moved(lab: Lab, serve: Callable[[], tuple[Answer, ...]]) -> tuple[tuple[Answer, ...], dict[str, int]]:
    """Answers, and by how much they moved the decoder's counters."""
    decoder = lab.decoder
    assert isinstance(decoder, Counted)
    before = guarded("counters", lambda: dict(decoder.counters()))
    answers = serve()
    after = guarded("counters", lambda: dict(decoder.counters()))
    return answers, {name: int(after[name]) - int(before.get(name, 0)) for name in after}


def recount(answers: Sequence[Answer]) -> dict[str, int]:
    """What the counters must have moved by, from the events and, where there is one, from the trace."""
    found = {
        "prompt_tokens": sum(len(answer.request.prompt) for answer in answers),
        "completion_tokens": sum(len(ids) for answer in answers for ids in answer.samples),
    }
    if any(answer.rounds is None for answer in answers):
        return found
    rounds = [r for answer in answers for r in answer.rounds or ()]
    kept = [len(r.committed[: r.accepted]) for r in rounds]
    found |= {
        "rounds": len(rounds),
        "drafted_rounds": sum(bool(r.proposals) for r in rounds),
        "draft_tokens": sum(len(r.proposals) for r in rounds),
        "accepted_tokens": sum(kept),
    }
    found |= {f"accepted_tokens_at_{i}": sum(count > i for count in kept) for i in range(max(kept, default=0))}
    if len(answers) == 1 and answers[0].request.n == 1:
        found["target_forwards"] = sum(r.target_forwards for r in rounds)
    return found


def counted(what: str, answers: Sequence[Answer], found: Mapping[str, int], longest: int) -> list[Case]:
    """Counters against a recount; and, whether or not there is a trace, against one another."""
    known = recount(answers)
    places = sorted(name for name in found if name.startswith("accepted_tokens_at_") and found[name])
    known |= {name: 0 for name in places if "accepted_tokens" in known and name not in known}
    names = sorted(name for name in known if name in found)
    cases: list[Case] = [{"what": f"{what}: {name}", "expected": known[name], "actual": found[name]} for name in names]
    rounds, drafts, accepted = (found.get(name) for name in ("rounds", "draft_tokens", "accepted_tokens"))
    emitted, samples = known["completion_tokens"], sum(answer.request.n for answer in answers)
    holds: dict[str, bool] = {}
    if rounds is not None and accepted is not None:
        least, most = rounds + accepted - samples, rounds + accepted
        holds[f"{emitted} tokens of {samples} samples in {rounds} rounds that accepted {accepted}"] = (
            least <= emitted <= most
        )
    if accepted is not None and drafts is not None:
        drafted = found.get("drafted_rounds", rounds if rounds is not None else drafts)
        holds[f"{accepted} accepted of {drafts} drafts in {drafted} rounds of at most {longest}"] = (
            accepted <= drafts <= drafted * longest
        )
    if places and accepted is not None:
        at = [found.get(f"accepted_tokens_at_{i}", 0) for i in range(longest)]
        holds[f"{accepted} accepted, by place {at}"] = sum(at) == accepted and at == sorted(at, reverse=True)
    return [*cases, *({"what": f"{what}: {that}", "expected": True, "actual": held} for that, held in holds.items())]
