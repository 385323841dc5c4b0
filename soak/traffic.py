"""Traffic: how the plan of an epoch is drawn, one function per kind; sizes are requests of an epoch."""

from dataclasses import replace
from random import Random
from typing import Any

from specqual.conformance.generators import CHUNK, PAGE
from specqual.contract import Sampling

from .plan import Asked, Draw, Plan, Room
from .requests import SHORT, WARM, asked, drawn, ids, looks, planned, warm
from .scripts import tabled

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
