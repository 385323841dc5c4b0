"""Traffic: how the plan of an epoch is drawn, one function per kind; sizes are requests of an epoch."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from specqual.conformance.generators import CHUNK, PAGE, piece
from specqual.contract import CompactLaw, Proposal, Request, Sampling, Script, ScriptContext

from .plan import Asked, Draw, Plan, Room

SHORT = (1, 2, 3, 5, 8, 9, 12, PAGE - 1, PAGE, PAGE + 1)
GREEDY = Sampling()
WARM = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.7),
    Sampling(temperature=1.3, top_k=12),
    Sampling(temperature=1.0, top_p=0.9),
    Sampling(temperature=0.9, min_p=0.05),
)
PENALISED = (
    Sampling(repetition_penalty=1.2),
    Sampling(temperature=0.8, presence_penalty=0.6),
    Sampling(temperature=1.1, frequency_penalty=0.4, top_k=20),
    Sampling(temperature=1.0, repetition_penalty=0.9, top_p=0.95),
)
BAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("prompt", {"prompt": ()}),
    ("prompt", {"prompt": (1, -1)}),
    ("prompt", {"prompt": (1, 10**9)}),
    ("max_tokens", {"max_tokens": 0}),
    ("min_tokens", {"min_tokens": 9, "max_tokens": 3}),
    ("n", {"n": 0}),
    ("seed", {"seed": -1}),
    ("stop_ids", {"stop_ids": (10**9,)}),
    ("temperature", {"sampling": Sampling(temperature=-1.0)}),
    ("temperature", {"sampling": Sampling(temperature=float("nan"))}),
    ("top_p", {"sampling": Sampling(temperature=1.0, top_p=0.0)}),
    ("top_k", {"sampling": Sampling(temperature=1.0, top_k=-3)}),
    ("logit_bias", {"sampling": Sampling(logit_bias=((10**9, 1.0),))}),
)
LONG = 2048  # tokens of a context that is nearly filled
JUDGED, ALONE, LOOKS = 0.25, 0.06, 0.1  # of requests, requests and ticks


def ids(chance: Random, room: Room, length: int) -> tuple[int, ...]:
    """A prompt of so many tokens."""
    return piece(room.text, room.usable, range(room.limits.vocab_size), chance, length)


def asked(chance: Random, room: Room, length: int, budget: int, sampling: Sampling = GREEDY, n: int = 1) -> Request:
    """A request within the context; what the decoder does not honour is left out."""
    if not {"temperature", "seed"} <= room.honoured and not sampling.greedy:
        sampling = GREEDY
    names = {"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"}
    sampling = replace(sampling, **{name: getattr(GREEDY, name) for name in names - room.honoured})
    budget = max(1, min(budget, room.limits.max_context - 2))
    length = max(1, min(length, room.limits.max_context - 1 - budget))
    return Request(
        prompt=ids(chance, room, length),
        max_tokens=budget,
        sampling=sampling,
        seed=0 if sampling.greedy else chance.randrange(2**63),
        n=n if "n" in room.honoured else 1,
        ignore_eos="ignore_eos" in room.honoured and chance.random() < 0.8,
    )


def planned(chance: Random, asked: Iterable[Asked], rates: tuple[float, float] = (JUDGED, ALONE), **more: Any) -> Plan:
    """A plan with its samples drawn: who is judged, who is served again, alone, and when states are looked at."""
    every = tuple(asked)

    def some(rate: float, count: int) -> frozenset[int]:
        return frozenset(chance.sample(range(count), min(count, max(rate > 0, round(rate * count)))))

    return Plan(every, judged=some(rates[0], len(every)), alone=some(rates[1], len(every)), **more)


def looks(chance: Random, ticks: int = 80, rate: float = LOOKS) -> frozenset[int]:
    """Ticks at which a state is looked at."""
    return frozenset(chance.sample(range(2, ticks), max(1, round(rate * ticks))))


def warm(chance: Random) -> Sampling:
    return chance.choice((GREEDY, GREEDY, *WARM[:3]))


def drawn(chance: Random, room: Room, count: int) -> list[Asked]:
    """Short requests of mixed shapes: some share their beginning, some have two samples, a few are asked for twice."""
    stems = [ids(chance, room, 2 * CHUNK) for _ in range(3)]
    found = list[Asked]()
    for place in range(count):
        long = chance.random() < 0.06
        length = chance.randint(CHUNK - 2, CHUNK + 20) if long else chance.choice(SHORT)
        request = asked(chance, room, length, chance.randint(1, 12), warm(chance), 2 if chance.random() < 0.08 else 1)
        if long or chance.random() < 0.2:
            stem = chance.choice(stems)[: len(request.prompt)]
            request = replace(request, prompt=(*stem[:-1], request.prompt[-1]))
        again = chance.randrange(place) if place > 8 and chance.random() < 0.04 else None
        found.append(Asked(request) if again is None else Asked(found[again].request, again=again))
    return found


def mixed(count: int) -> Draw:
    """Short mixed shapes, many at a time."""

    def draw(chance: Random, room: Room) -> Plan:
        return planned(chance, drawn(chance, room, room.sized(count)), looks=looks(chance))

    return draw


def oscillating(count: int) -> Draw:
    """Batches that grow and shrink across the sizes that graphs are made for; buckets, lag and chunks change."""

    def draw(chance: Random, room: Room) -> Plan:
        live = tuple(width for width in (16, 1, 12, 3, 16, 2, 7, 1) for _ in range(chance.randint(3, 6)))
        schedule = {
            tick: chance.choice(({"bucket": 32}, {"bucket": 1}, {"lag": 1}, {"lag": 0}, {"chunk": 16}, {"chunk": 256}))
            for tick in range(2, 60, 5)
        }
        found = drawn(chance, room, room.sized(count))
        return planned(chance, found, live=live, schedule=schedule, period=60, looks=looks(chance))

    return draw


def storm(count: int) -> Draw:
    """Cancellations at random phases, under a lag that comes and goes."""

    def draw(chance: Random, room: Room) -> Plan:
        found = [
            replace(one, cancel=chance.choice((0, 0, 1, 1, 2, 3, 4, 6))) if chance.random() < 0.5 else one
            for one in drawn(chance, room, room.sized(count))
        ]
        schedule = {7: {"lag": 1}, 19: {"lag": 0}, 23: {"chunk": 16}, 37: {"chunk": 256}}
        return planned(chance, found, live=(24,), schedule=schedule, period=41, looks=looks(chance))

    return draw


def counted(count: int) -> Draw:
    """A storm with requests that wait in between, after which objects are counted. To no scale: it fills what a
    decoder remembers of requests, which would go on growing when they are served again."""
    stormy = storm(count)

    def draw(chance: Random, room: Room) -> Plan:
        plan = stormy(chance, replace(room, scale=1.0))
        waiting = [replace(one, preempt=((1, 2),)) if place % 4 == 1 else one for place, one in enumerate(plan.asked)]
        return replace(plan, asked=tuple(waiting), counted=True)

    return draw


def pressed(count: int) -> Draw:
    """More under way than the pool holds: preempted and resumed at random, cancelled now and then."""

    def draw(chance: Random, room: Room) -> Plan:
        found = list[Asked]()
        for place in range(room.sized(count)):
            length, budget = chance.choice((3, PAGE, 20, 33, 48)), chance.randint(4, 16)
            request = asked(chance, room, length, budget, warm(chance), 2 if place % 9 == 4 else 1)
            start = chance.randint(1, 5)
            preempt = ((start, chance.randint(1, 4)), (start + 6, 2)) if chance.random() < 0.5 else ()
            cancel = chance.randint(0, 9) if chance.random() < 0.12 else None
            found.append(Asked(request, cancel=cancel, preempt=preempt))
        schedule = {11: {"lag": 1}, 17: {"lag": 0}}
        return planned(chance, found, live=(12,), schedule=schedule, period=29, looks=looks(chance))

    return draw


def conversations(count: int, turns: int) -> Draw:
    """Conversations that grow turn by turn: each prompt is all that was said so far, and some more. Beside them, others
    that begin alike and end close behind what is shared, where a drafter's window still sees it.
    """

    def draw(chance: Random, room: Room) -> Plan:
        found, last, stem = list[Asked](), dict[int, int](), ids(chance, room, CHUNK)
        for turn in range(turns):
            for who in range(room.sized(count)):
                length = chance.randint(20, CHUNK + 10) if turn == 0 else chance.randint(4, 30)
                request = asked(chance, room, length, chance.randint(6, 18), warm(chance))
                found.append(Asked(request, follows=last.get(who)))
                last[who] = len(found) - 1
                if who % 3 == 0:
                    ending = ids(chance, room, chance.randint(1, 8))
                    found.append(Asked(replace(request, prompt=(*stem, *ending), max_tokens=6)))
        more = {
            "live": (8,),
            "schedule": {0: {"chunk": CHUNK}},
            "chunk": CHUNK,
            "period": 10**9,
            "looks": looks(chance, 60),
        }
        return planned(chance, found, (0.2, 0.15), **more)

    return draw


def tempered(count: int) -> Draw:
    """Temperatures, filters and penalties in one batch."""

    def draw(chance: Random, room: Room) -> Plan:
        found = list[Asked]()
        for _ in range(room.sized(count)):
            sampling = chance.choice((*WARM, *PENALISED))
            found.append(Asked(asked(chance, room, chance.choice(SHORT), chance.randint(2, 12), sampling)))
        return planned(chance, found, looks=looks(chance))

    return draw


def undrafted(count: int) -> Draw:
    """Draft lengths that fall to zero for a stretch, and rise again."""

    def draw(chance: Random, room: Room) -> Plan:
        most = room.limits.max_draft
        schedule = {0: {"draft": 0}, 40: {"draft": min(1, most)}, 50: {"draft": most}, 60: {"draft": 0}}
        found = drawn(chance, room, room.sized(count))
        return planned(chance, found, schedule=schedule, period=100, looks=looks(chance))

    return draw


def banned(token: int) -> Script:
    """A drafter that offers one token over and over."""

    def draft(context: ScriptContext) -> Proposal:
        return Proposal.certain((token,) * context.max_draft)

    return draft


def barren(steps: int) -> Draw:
    """A stretch in which every draft is rejected, since it is a token that every request forbids."""

    def draw(chance: Random, room: Room) -> Plan:
        token = chance.choice(room.usable)
        found = list[Asked]()
        for place in range(1 if steps > 1000 else 8):
            sampling = Sampling(temperature=float(place % 2 == 0), logit_bias=((token, -1e6),))
            request = asked(chance, room, 1 + place, steps, sampling)
            found.append(Asked(replace(request, ignore_eos="ignore_eos" in room.honoured)))
        rates = (0.0, 0.0) if steps > 1000 else (JUDGED, ALONE)
        script = banned(token) if room.rejects else None
        return planned(chance, found, rates, script=script, looks=looks(chance, min(steps, 200)))

    return draw


def stretch(steps: int) -> Draw:
    """One request that takes so many steps, each with one draft that is rejected."""

    def draw(chance: Random, room: Room) -> Plan:
        token = chance.choice(room.usable)
        request = asked(chance, room, 9, steps, Sampling(temperature=1.0, logit_bias=((token, -1e6),)))
        found = [Asked(replace(request, ignore_eos="ignore_eos" in room.honoured))]
        more = {"schedule": {0: {"draft": min(1, room.limits.max_draft)}}, "period": 10**9}
        script = banned(token) if room.rejects else None
        return planned(chance, found, (1.0, 0.0), looks=frozenset({steps // 4, steps - 100}), script=script, **more)

    return draw


def limits(count: int) -> Draw:
    """Prompts and budgets that end where the context does, one token before, and behind it."""

    def draw(chance: Random, room: Room) -> Plan:
        context, found = room.limits.max_context, list[Asked]()
        for _ in range(count):
            left = chance.choice((1, 2, room.limits.max_draft + 1, room.limits.max_draft + 3, 9))
            request = asked(chance, room, 1, 1, warm(chance))
            prompt = ids(chance, room, context - left)
            found.append(Asked(replace(request, prompt=prompt, max_tokens=left + chance.choice((0, 0, 5)))))
            found.append(Asked(replace(request, prompt=ids(chance, room, 7), max_tokens=5)))
        for beyond in (0, 1, 40):
            request = asked(chance, room, 1, 1)
            found.append(Asked(replace(request, prompt=ids(chance, room, context + beyond)), refused=True))
        chance.shuffle(found)
        return planned(chance, found, (0.1, 0.1), live=(6,))

    return draw


def long_context(count: int) -> Draw:
    """A few requests of some hundred tokens, one of nearly the whole context, and short ones beside them."""

    def draw(chance: Random, room: Room) -> Plan:
        found = list[Asked]()
        nearly = min(room.limits.max_context, LONG) - 40
        for place in range(count):
            length = chance.randint(300, 1200) if place else nearly
            found.append(Asked(asked(chance, room, length, 24, warm(chance))))
            found += [Asked(asked(chance, room, 9, 12)) for _ in range(2)]
        return planned(chance, found, (0.3, 0.2), live=(4,), looks=frozenset({6}))

    return draw


def far(length: int) -> Draw:
    """One request whose prompt ends and whose output goes on behind so many positions, less a few."""

    def draw(chance: Random, room: Room) -> Plan:
        start = length - 200
        found = [Asked(asked(chance, room, start, 260, chance.choice((GREEDY, WARM[0]))))]
        found += [Asked(asked(chance, room, 5, 9)) for _ in range(6)]
        return planned(chance, found, (1.0, 0.0), live=(2,))

    return draw


def bad_requests(count: int) -> Draw:
    """Malformed requests among good ones."""

    def draw(chance: Random, room: Room) -> Plan:
        good = asked(chance, room, 4, 4)
        wrong = tuple((field, replace(good, **changes)) for field, changes in chance.sample(BAD, len(BAD)))
        return planned(chance, drawn(chance, room, room.sized(count)), bad=wrong, looks=looks(chance, 30))

    return draw


def gaps(count: int) -> Draw:
    """Bursts with nothing to do between them."""

    def draw(chance: Random, room: Room) -> Plan:
        live = (16,) * 8 + (0,) * 30
        return planned(chance, drawn(chance, room, room.sized(count)), live=live, idle=40)

    return draw


def laws(count: int) -> Draw:
    """Sampled requests on a table whose law is known exactly, drafted for by other laws; a few are cancelled."""

    def draw(chance: Random, room: Room) -> Plan:
        found = list[Asked]()
        for _ in range(room.sized(count)):
            request = asked(chance, room, chance.randint(1, 4), chance.randint(8, 32), Sampling(temperature=1.0))
            found.append(Asked(request, cancel=chance.randint(1, 8) if chance.random() < 0.03 else None))
        script = tabled(chance.randrange(2**63), room) if room.rejects else None
        return planned(chance, found, (0.0, 0.02), script=script)

    return draw


def tabled(seed: int, room: Room) -> Script:
    """A drafter with a law of its own behind every token, and sometimes none; `request_id` is the place in the plan.

    What it draws depends on where it stands and not on what stands there, so that given the past it is still random.
    """
    vocabulary = range(room.limits.vocab_size)
    laws = list[CompactLaw]()
    for last in vocabulary:
        weights = [Random(f"{seed}/{last}/{token}").random() ** 2 + 0.02 for token in vocabulary]
        laws.append(CompactLaw(tuple(vocabulary), tuple(weight / sum(weights) for weight in weights)))

    def draft(context: ScriptContext) -> Proposal:
        chance = Random((seed * 2**20 + context.request_id) * 2**20 + len(context.tokens) * 16 + context.sample)
        count = chance.randint(0, context.max_draft)
        if chance.random() < 0.1:
            return Proposal.certain(tuple(chance.choices(vocabulary, k=count)))
        tokens, last = list[int](), context.tokens[-1]
        q = list[CompactLaw | None]()
        for _ in range(count):
            q.append(laws[last])
            last = chance.choices(vocabulary, laws[last].probabilities)[0]
            tokens.append(last)
        return Proposal(tuple(tokens), tuple(q))

    return draft
