"""The optional protocols of an adapter, each tried once, and what those that are missing would unlock."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from inspect import getattr_static
from typing import Any

import specqual.contract as contract
from specqual.contract import Decoder, Kernels, Proposal, Round, Sampling, Scored, State
from specqual.reference.rng import Counter
from specqual.reference.tape import Recorded

from .clauses import CLAUSES
from .drive import DecoderError, guarded, serve, serve_any
from .listening import Mistake, listen
from .smoke import Found, attempt, request_of


def needing(name: str) -> list[str]:
    """The clauses that are skipped without this protocol."""
    return [clause.id for clause in CLAUSES.values() if name in clause.needs]


def decidable(offered: set[str]) -> int:
    """How many clauses need nothing beyond these protocols."""
    return sum(offered.issuperset(clause.needs) for clause in CLAUSES.values())


def protocol(name: str, decoder: Decoder) -> Found:
    """Try one optional protocol; not offered is no mistake."""
    kind = getattr(contract, name)
    if isinstance(decoder, kind):
        found = attempt(name, lambda: PROTOCOLS[name](decoder))
    else:
        ids = needing(name)
        said = f"not offered; {len(ids)} clauses need it: {', '.join(ids[:6])}{' …' if ids[6:] else ''}"
        found = Found(name, None, said)
    hidden = delegated(decoder, kind)
    if not hidden:
        return found
    hint = f"Python 3.12 and later do not see {', '.join(hidden)} behind __getattr__: define what delegates"
    return replace(found, said=f"{found.said}; {hint}")


def delegated(decoder: Decoder, kind: type) -> list[str]:
    """The members of a protocol that only `__getattr__` finds, so that isinstance denies it from Python 3.12 on;
    none where another member is not there at all."""
    members = [name for name in vars(kind) if not name.startswith("_")]
    if not all(hasattr(decoder, name) for name in members):
        return []
    nowhere = object()
    return [name for name in members if getattr_static(decoder, name, nowhere) is nowhere]


def scoring(decoder: Any) -> str:
    request = request_of(decoder)
    (answer,) = serve(decoder, [request])
    scored = guarded("score", lambda: decoder.score(request.prompt, answer.output))
    if not isinstance(scored, Scored):
        raise Mistake(f"score returned {type(scored).__name__}; it must return a Scored")
    for column in ("logprob", "best", "argmax", "runner_up"):
        if len(getattr(scored, column)) != len(answer.output):
            raise Mistake(f"Scored.{column} has {len(getattr(scored, column))} entries for {len(answer.output)} tokens")
    if max(scored.logprob) > 1e-6:
        raise Mistake(f"Scored.logprob holds {max(scored.logprob):.3g}; log-probabilities are at most 0, in nats")
    off = max(scored.regret)
    return f"scores its own greedy output, worst regret {off:.3g} nats" + (
        "" if off < 1 else "; is the row off by one?"
    )


def traced(decoder: Any) -> str:
    (answer,) = serve(decoder, [request_of(decoder, 16)])
    rounds = answer.rounds or ()
    if not all(isinstance(r, Round) for r in rounds):
        raise Mistake("rounds must return a tuple of Round")
    told = tuple(token for r in rounds for token in r.committed)
    if told != answer.output:
        raise Mistake(f"the rounds commit {list(told)}, but the output is {list(answer.output)}")
    drafted, accepted = sum(len(r.proposals) for r in rounds), sum(r.accepted for r in rounds)
    return f"{len(rounds)} rounds commit the output; {accepted} of {drafted} drafts accepted"


def scripted(decoder: Any) -> str:
    asked = list[int]()

    def script(context: Any) -> Proposal:
        asked.append(context.round_index)
        return Proposal.certain(tuple(context.tokens[-1:] * min(2, context.max_draft)))

    guarded("script", lambda: decoder.script(script))
    try:
        (answer,) = serve(decoder, [request_of(decoder, 8)])
    finally:
        guarded("script", lambda: decoder.script(None))
    if not asked:
        return "takes a drafter and did not ask it: without room for drafts there is nothing to ask"
    if answer.rounds is not None and not any(r.proposals for r in answer.rounds):
        raise Mistake("the scripted drafts are in no round of the trace")
    return f"asked the scripted drafter in {len(asked)} rounds"


def taped(decoder: Any) -> str:
    if "temperature" not in decoder.claims.sampling:
        return "takes a tape; temperature is not honoured, so nothing is drawn"
    recorded = Recorded(Counter())
    guarded("tape", lambda: decoder.tape(recorded))
    try:
        serve(decoder, [request_of(decoder, sampling=Sampling(temperature=1.0))])
    finally:
        guarded("tape", lambda: decoder.tape(None))
    if not recorded.asked:
        raise Mistake("a sampled request read no number of the tape; every draw must come from it")
    return f"{len(recorded.asked)} numbers were read"


def inspectable(decoder: Any) -> str:
    seen = list[Any]()

    def look(tick: int, ids: Sequence[int]) -> None:
        with suppress(KeyError):  # not let in yet, or ended
            seen.append(decoder.inspect(ids[0]))

    serve_any(decoder, [request_of(decoder, 16)], on_tick=look)
    resources = guarded("resources", decoder.resources)
    if not isinstance(resources, Mapping) or not all(isinstance(count, int) for count in resources.values()):
        raise Mistake(f"resources returned {resources!r}; it must map names to free counts")
    if not seen:
        raise Mistake("inspect raised KeyError behind every step; between steps a live request must show its state")
    if not isinstance(seen[0], State):
        raise Mistake(f"inspect returned {type(seen[0]).__name__}; it must return a State")
    return f"{len(seen[0].tensors)} tensors behind the first of {len(seen)} steps; free: {dict(resources)}"


def schedulable(decoder: Any) -> str:
    request = request_of(decoder, 16)
    request_id = guarded("submit", lambda: decoder.submit(request))
    guarded("preempt", lambda: decoder.preempt(request_id))
    for _ in range(3):
        events = guarded("step", decoder.step)
        if events:
            raise Mistake(f"a preempted request brought {events[0]!r}; it must be silent until it is resumed")
    guarded("resume", lambda: decoder.resume(request_id))
    listen(decoder, [request_id], [request])
    taken = []
    for name in ("chunk", "lag", "bucket", "draft"):
        try:
            guarded("schedule", lambda name=name: decoder.schedule(**{name: 1}))
            taken.append(name)
        except DecoderError as error:
            if not isinstance(error.__cause__, ValueError):
                raise Mistake(f"schedule({name}=1): {error}; what is not there raises ValueError") from None
    return f"preempts and resumes; schedules {', '.join(taken) or 'nothing'}"


def counted(decoder: Any) -> str:
    before = dict(guarded("counters", decoder.counters))
    serve(decoder, [request_of(decoder)])
    after = dict(guarded("counters", decoder.counters))
    fell = [name for name in before if after.get(name, 0) < before[name]]
    if fell:
        raise Mistake(f"the counter {fell[0]} fell from {before[fell[0]]} to {after.get(fell[0])}; counters only grow")
    return ", ".join(f"{name} +{after[name] - before.get(name, 0)}" for name in sorted(after)) or "counts nothing"


def dissectable(decoder: Any) -> str:
    found = guarded("kernels", decoder.kernels)
    if not isinstance(found, Kernels):
        raise Mistake(f"kernels returned {type(found).__name__}; it must return a Kernels")
    names = [field.name for field in fields(found) if getattr(found, field.name)]
    return f"kernels: {', '.join(names) or 'none'}"


PROTOCOLS: dict[str, Callable[[Any], str]] = {
    "Scoring": scoring,
    "Counted": counted,
    "Traced": traced,
    "Scripted": scripted,
    "Taped": taped,
    "Inspectable": inspectable,
    "Schedulable": schedulable,
    "Dissectable": dissectable,
}
