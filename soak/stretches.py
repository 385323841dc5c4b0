"""Stretches: plans that go far, in steps, tokens or positions, or to where a context ends."""

from dataclasses import replace
from random import Random

from specqual.contract import Sampling

from .plan import Asked, Draw, Plan, Room
from .requests import ALONE, GREEDY, JUDGED, WARM, asked, ids, looks, planned, warm
from .scripts import banned

LONG = 2048  # tokens of a context that is nearly filled
PARTING = 16  # requests behind whose end a decoder may forget one that ended before them


def parting(chance: Random, room: Room, sampling: Sampling) -> list[Asked]:
    """Short requests to be served behind a long one: its rounds, megabytes of them, are then forgotten, and do not pile
    up in a process from epoch to epoch until as many long ones have ended."""
    return [Asked(asked(chance, room, 3, 2, sampling)) for _ in range(PARTING)]


def barren(steps: int) -> Draw:
    """A stretch in which every draft is rejected, since it is a token that every request forbids."""

    def draw(chance: Random, room: Room) -> Plan:
        token = chance.choice(room.usable)
        found = list[Asked]()
        for place in range(1 if steps > 1000 else 8):
            sampling = Sampling(temperature=float(place % 2 == 0), logit_bias=((token, -1e6),))
            request = asked(chance, room, 1 + place, steps, sampling)
            found.append(Asked(replace(request, ignore_eos="ignore_eos" in room.honoured)))
        rates, live = (JUDGED, ALONE), (16,)
        if steps > 1000:
            rates, live = (0.0, 0.0), (1,)
            found += parting(chance, room, Sampling(logit_bias=((token, -1e6),)))
        script = banned(token) if room.rejects else None
        return planned(chance, found, rates, script=script, live=live, looks=looks(chance, min(steps, 200)))

    return draw


def stretch(steps: int) -> Draw:
    """One request that takes so many steps, each with one draft that is rejected."""

    def draw(chance: Random, room: Room) -> Plan:
        token = chance.choice(room.usable)
        request = asked(chance, room, 9, steps, Sampling(temperature=1.0, logit_bias=((token, -1e6),)))
        found = [Asked(replace(request, ignore_eos="ignore_eos" in room.honoured))]
        found += parting(chance, room, Sampling(logit_bias=((token, -1e6),)))
        more = {"live": (1,), "schedule": {0: {"draft": min(1, room.limits.max_draft)}}, "period": 10**9}
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
