"""GRF: whatever shapes batches take, and whatever was captured for them, a request says what it says alone."""

from dataclasses import replace

from specqual.conformance import scenes
from specqual.conformance.chapter import clause
from specqual.conformance.drive import NotOffered, guarded
from specqual.conformance.evidence import Evidence, Guard
from specqual.conformance.generators import FARTHEST
from specqual.conformance.history import CHUNK, PAGE, Cast, Step
from specqual.conformance.lab import Lab
from specqual.conformance.waves import Scene, Waves, evidence_of
from specqual.contract import Counted, Sampling, Scripted

MANY = 15  # requests of the larger batch, or what the decoder takes at once
SMALL, LARGE = 2 * PAGE, 6 * PAGE  # rows of two buckets
STEP, DRAIN = Step("step", amount=1), Step("drain")


def most(lab: Lab) -> int:
    """How many requests make a large batch; NotOffered where none is served beside another."""
    count = min(MANY, lab.claims.limits.max_batch)
    if count < 2:
        raise NotOffered("the decoder takes one request at a time: there are no batches to pad")
    return count


def cast(lab: Lab, clause_id: str, lengths: list[int], tokens: list[int]) -> Cast:
    """Requests of these prompt lengths and budgets, every third one sampled where that is honoured."""
    found = list(scenes.requests(lab, clause_id, lengths, max(tokens)))
    for place, budget in enumerate(tokens):
        sampled = place % 3 == 2 and lab.honours("temperature", "seed")
        drawn = {"sampling": Sampling(temperature=0.9), "seed": place} if sampled else {}
        found[place] = replace(found[place], max_tokens=budget, **drawn)
    return tuple(found)


def submits(*places: int) -> tuple[Step, ...]:
    return tuple(Step("submit", place) for place in places)


def bucket(rows: int) -> Step:
    return Step("bucket", amount=rows)


@clause("GRF-1")
def test_short_and_long_spans_share_a_bucket(lab: Lab) -> Evidence:
    count, longest = min(4, most(lab)), lab.longest
    if longest < 2:
        raise NotOffered(f"the decoder drafts at most {longest} tokens, so all spans are short")
    everybody = cast(lab, "GRF-1", [3, 17, 9, 1][:count], [6 * longest] * count)
    lengths = [Step("draft", amount=drafts) for drafts in (1, longest, 2, longest - 1, 1, longest)]
    turns = tuple(step for length in lengths for step in (length, STEP))
    steps = (bucket(LARGE), *submits(*range(count)), STEP, STEP, *turns)
    return evidence_of(lab, [(steps, everybody)], [(f"ticks with {count} requests", 4)])


@clause("GRF-2")
def test_padded_rows_never_leak(lab: Lab) -> Evidence:
    count = min(8, most(lab))
    budgets = [24, 1, 2, 18, 3, 5, 9, 14][:count]
    everybody = cast(lab, "GRF-2", [5, 33, 3, 18, 1, 16, 7, 31][:count], budgets)
    again = submits(*range(count - 1, 0, -2))
    steps = (
        bucket(LARGE),
        *submits(*range(count)),
        Step("step", amount=6),
        *again,
        STEP,
        STEP,
        *again[:1],
        DRAIN,
        *again,
    )
    return evidence_of(lab, [(steps, everybody)], [(f"ticks with {count} requests", 1), ("ticks with 1 requests", 1)])


@clause("GRF-3")
def test_two_sizes_keep_to_their_own_buffers(lab: Lab) -> Evidence:
    count = min(4, most(lab))
    everybody = cast(lab, "GRF-3", [9, 2, 20, 1][:count], [14] * count)
    turns = tuple(step for rows in (SMALL, LARGE) * 4 for step in (bucket(rows), STEP))
    own = (*submits(*range(count)), *turns)
    return evidence_of(
        lab,
        [(own, everybody), ((Step("alternate"), *own), everybody)],
        [(f"ticks with {count} requests", 4)]
        + [("drafted beside undrafted", 1)] * (isinstance(lab.decoder, Scripted) and lab.longest > 0),
    )


def oscillating(lab: Lab, count: int) -> Scene:
    """As many long requests as make half of `count`, rounded up, and in waves the others, which are short; a few
    different ones of each, in turn."""
    half = -(-count // 2)
    everybody = cast(lab, "GRF-4", [3, 17, 1, 9, 5, 2], [24, 30, 28, 3, 2, 3])
    long, short = ([kind + i % 3 for i in range(size)] for kind, size in ((0, half), (3, count - half)))
    wave = (*submits(*short), STEP, STEP, STEP, STEP)
    return (bucket(SMALL), *submits(*long), STEP, STEP, *wave * (4 if lab.thorough else 2)), everybody


@clause("GRF-4")
def test_oscillating_batches_say_the_same(lab: Lab) -> Evidence:
    count = most(lab)
    guards = [(f"ticks with {size} requests", 2) for size in (-(-count // 2), count)]
    return evidence_of(lab, [oscillating(lab, count)], guards)


@clause("GRF-5")
def test_a_captured_size_serves_any_length(lab: Lab) -> Evidence:
    count = min(3, most(lab))
    window = lab.window if lab.window is not None and lab.window <= FARTHEST else 0
    far = max(2 * CHUNK + 5, window + 3)
    short, long = [3, 9, 1][:count], [far, CHUNK + 1, far - CHUNK][:count]
    everybody = cast(lab, "GRF-5", short + long, [9] * 2 * count)
    waves = (submits(*range(count)), submits(*range(count, 2 * count)))
    steps = (*waves[0], DRAIN, *waves[1], DRAIN, *waves[0], STEP, STEP, *waves[1])
    return evidence_of(lab, [(steps, everybody)], [(f"ticks with {count} requests", 4)])


def captures(decoder: Counted) -> int:
    """How many graphs were captured so far; NotOffered where none are."""
    counters = guarded("counters", decoder.counters)
    if "graph_captures" not in counters:
        raise NotOffered("the decoder counts no graph_captures: it captures no graphs, or does not say so")
    return int(counters["graph_captures"])


@clause("GRF-6")
def test_oscillation_captures_nothing_anew(lab: Lab) -> Evidence:
    steps, everybody = oscillating(lab, most(lab))
    with lab.twin.fresh() as decoder:
        captures(decoder)
        for _ in range(2):
            Waves(lab, decoder, everybody).play(steps)
        before = captures(decoder)
        Waves(lab, decoder, everybody).play(steps)
        behind = captures(decoder)
    what = "graphs captured behind the same waves once more"
    return Evidence("values", [{"what": what, "expected": before, "actual": behind}], [Guard("captures", before)])


def drawn(lab: Lab, number: int) -> Scene:
    """Waves by chance, small and large ones in turn; every second scene leaves draft lengths alone, so that whole
    rounds can be compared."""
    chance, room = lab.random(f"GRF-7/{number}"), most(lab)
    count = min(6, room)
    waves = [1, 2, 3, -(-room // 2), -(-room // 2), room] if lab.has("crowds") else [1] * 6
    lengths, budgets = (
        [chance.choice(sizes) for _ in range(count)] for sizes in ((1, 3, 15, 17, 33), (1, 2, 7, 16, 21))
    )
    steps = [bucket(chance.choice((SMALL, LARGE)))]
    for size in chance.sample(waves, len(waves)):
        steps += submits(*chance.choices(range(count), k=min(size, room)))
        steps += [Step("draft", amount=chance.randint(0, lab.longest))] * (number % 2 and chance.random() < 0.7)
        steps += [bucket(chance.choice((1, SMALL, LARGE)))] * (chance.random() < 0.4)
        steps += [STEP] * chance.randint(1, 3)
    return tuple(steps), cast(lab, f"GRF-7/{number}", lengths, budgets)


@clause("GRF-7")
def test_any_waves_say_the_same(lab: Lab) -> Evidence:
    count = 12 if lab.thorough else 2
    half = -(-most(lab) // 2)
    guards = [(f"batches grown past {half} requests", 2)]
    return evidence_of(lab, [drawn(lab, number) for number in range(count)], guards)
