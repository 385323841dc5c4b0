"""Histories written on purpose: the places where engines go wrong, one after the other."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from specqual.contract import Request, Sampling

from .generators import CHUNK, PAGE, edges, prompt, sizes, usable
from .history import Cast, Step
from .lab import Lab
from .shrink import Steps

Scene = tuple[Steps, Cast]


def requests(lab: Lab, clause: str, lengths: list[int], tokens: int) -> Cast:
    """Greedy requests of these prompt lengths; no two begin with the same token as far as the vocabulary goes."""
    chance, found, firsts = lab.random(clause), list[Request](), usable(lab)
    for place, length in enumerate(lengths):
        size, budget = sizes(lab, length, tokens)
        ids = (firsts[(place + 2) % len(firsts)], *prompt(lab, chance, size)[1:])
        found.append(Request(prompt=ids, max_tokens=budget, ignore_eos=lab.honours("ignore_eos")))
    return tuple(found)


def offsets(lab: Lab, *, thorough: bool) -> Iterator[Scene]:
    """Drafted rounds that begin at every offset to every edge and accept every m, and an m for each offset, by a script
    that changes and is silent in between; in brief only these, and once, at pages, all drafts but the last."""
    longest = lab.longest
    for edge in edges(lab):
        lengths = [edge - back for back in range(longest + 2) if edge > back]
        cast = requests(lab, f"offsets/{edge}", lengths, longest + 4)
        submits = tuple(Step("submit", place) for place in range(len(cast)))
        every = range(longest + 1) if thorough else (longest - 1,) if edge == PAGE else ()
        for right in (longest + 2, *every):
            yield (Step("script", amount=right), *submits, Step("drain")), cast


def uneven(lab: Lab) -> Iterator[Scene]:
    """Undrafted rounds behind acceptances, beside rows that are drafted; silence, changing draft lengths."""
    longest, cast = lab.longest, requests(lab, "uneven", [3, 17, 1, 30], 4 * lab.longest)
    submits = tuple(Step("submit", place) for place in range(len(cast)))
    step, silent, uneven = (
        Step("step", amount=1),
        Step("script", amount=longest + 1),
        Step("script", amount=longest + 2),
    )
    for right in sorted({1, longest // 2, longest} - {0}):
        drafted = Step("script", amount=right)
        yield (*submits, step, drafted, step, silent, step, uneven, step, step, silent, step, drafted, step), cast
        short = (Step("draft", amount=0), step, Step("draft", amount=right), step, Step("draft", amount=longest))
        yield (*submits, step, drafted, step, *short, uneven, step, Step("own_drafter"), step, step), cast


def around(lab: Lab, verb: str, *, thorough: bool) -> Iterator[Scene]:
    """Cancel, or preempt and resume, a request in every phase and with every lag, beside others; with the configured
    drafter and with one that is sometimes right, in brief with one of the two. A preempted one waits for so long that
    it would be heard of if it were served."""
    chunk = lab.twin.sizes.chunk(PAGE)
    cast = requests(lab, verb, [2 * chunk + 5, 9, 3], lab.longest + 6)
    if lab.honours("temperature", "seed"):
        cast = (cast[0], cast[1], replace(cast[2], sampling=Sampling(temperature=0.9), seed=5))
    step, filled = Step("step", amount=1), -(-len(cast[0].prompt) // chunk)
    phases = {"while waiting": 0, "while being filled": 1, "behind a round": 1 + filled, "while held": 1 + filled}
    for place, (lag, phase) in enumerate(product(lab.twin.sizes.lags, phases)):
        if phase == "while held" and verb == "preempt":
            continue
        for scripted in {False, True} if thorough else {place % 2 == 0}:
            start = (Step("script", amount=lab.longest + 2),) if scripted else ()
            start += (
                Step("set_lag", amount=lag),
                Step("chunk", amount=chunk),
                Step("submit", 1),
                step,
                Step("submit", 0),
            )
            held = (Step("preempt", 1), step) if "held" in phase or verb == "preempt" else ()
            after = (Step("cancel", 1),) if verb == "cancel" else (*[step] * (filled + 2), Step("resume", 1))
            last = (step,) if scripted else (step, Step("submit", 2), step)
            yield (*start, *[step] * phases[phase], *held, *after, *last), cast


def storm(lab: Lab) -> Iterator[Scene]:
    """Many requests, nearly all of them cancelled."""
    cast = requests(lab, "storm", [5, CHUNK + 1, 20], 9)
    step, steps = Step("step", amount=1), list[Step]()
    for number in range(12):
        steps.append(Step("submit", number % len(cast)))
        steps += [step] * (number % 3 == 1)
        steps += [Step("cancel", number - 1)] * (number % 4 > 0)
    yield (*steps, *(Step("cancel", place) for place in (3, 7)), step), cast


def owners(lab: Lab) -> Iterator[Scene]:
    """The same requests in two orders, one behind the other, so that each gets what another one had."""
    cast = requests(lab, "owners", [33, 5, 17, 1], 2 * lab.longest + 4)
    if lab.honours("temperature", "seed"):  # two are sampled, so that one could have the other's q
        one, other = (replace(request, sampling=Sampling(temperature=0.9), seed=7) for request in cast[1:3])
        cast = (cast[0], one, other, cast[3])
    step, drain = Step("step", amount=1), Step("drain")
    order = [Step("submit", place) for place in range(len(cast))]
    yield (*order, drain, *reversed(order), drain), cast
    yield (order[2], step, order[0], step, order[3], order[1], step, step, order[0], drain, order[1], order[0]), cast


def warm(lab: Lab) -> Iterator[Scene]:
    """Prompts whose beginning was served before, by requests that have ended, that go on, and that were cancelled; in
    passes that end with a chunk, and in one that goes on behind it. At last a chunk that is known from behind another
    beginning, which is known, too."""
    chunk = lab.twin.sizes.chunk(CHUNK)
    long, other, elsewhere = requests(lab, "warm", [2 * chunk + 9, 7, chunk + 5], 2 * lab.longest + 4)
    branch = replace(long, prompt=(*long.prompt[: chunk + 6], *other.prompt))
    sampled = replace(branch, sampling=Sampling(temperature=0.9), seed=3)
    moved = replace(long, prompt=(*elsewhere.prompt[:chunk], *long.prompt[chunk:]))
    cast = (long, branch, other, sampled if lab.honours("temperature", "seed") else branch, elsewhere, moved)
    step, drain = Step("step", amount=1), Step("drain")
    cut, whole = Step("chunk", amount=chunk), Step("chunk", amount=max(lab.twin.sizes.chunks, default=chunk))
    one, two, three, four, five, six = (Step("submit", place) for place in range(6))
    yield (cut, one, drain, one, drain, two, four, drain), cast
    yield (cut, three, one, *[step] * 5, two, one, step, four, step, step), cast
    yield (cut, one, *[step] * 4, Step("cancel", 0), three, step, one, two, drain, two), cast
    yield (whole, one, drain, two, drain, five, drain, six, one, drain), cast
