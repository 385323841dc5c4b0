"""GRF: whatever shapes batches take, and whatever was captured for them, a request says what it says alone."""

from collections.abc import Iterable
from dataclasses import replace

from specqual.conformance import scenes
from specqual.conformance.campaign import allowed
from specqual.conformance.chapter import clause
from specqual.conformance.drive import NotOffered, guarded
from specqual.conformance.evidence import Evidence, Guard
from specqual.conformance.generators import FARTHEST
from specqual.conformance.history import CHUNK, PAGE, Cast, Step
from specqual.conformance.lab import Lab
from specqual.conformance.quotas import AGAIN, WAVES
from specqual.conformance.sizes import takes
from specqual.conformance.waves import Hazards, Scene, Waves, evidence_of, guards_of
from specqual.contract import Counted, Sampling, Schedulable, Scripted, Traced

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


def padded(lab: Lab, scenes: Iterable[Scene], hazards: Hazards) -> Evidence:
    """What waves in buckets say; NotOffered where nobody can ask for a bucket, or where a trace tells of none."""
    lab.require("Schedulable")
    with lab.twin.fresh() as decoder:
        if not takes(decoder, bucket=LARGE):
            raise NotOffered("the decoder takes no bucket")
    found = evidence_of(lab, scenes, [("rounds in a bucket", 1), *hazards])
    traced, buckets = isinstance(lab.decoder, Traced), int(found.notes.get("rounds in a bucket", 0))
    if found.guards and traced and lab.has("buckets") and not buckets:
        raise NotOffered("the decoder pads to no bucket, whatever it is asked for")
    return found


def speculated(lab: Lab) -> Hazards:
    """Rounds that the configured drafter drafted for, where there is one."""
    return [("rounds with drafts", 1)] if lab.drafts else []


def submits(*places: int) -> tuple[Step, ...]:
    return tuple(Step("submit", place) for place in places)


def bucket(rows: int) -> Step:
    return Step("bucket", amount=rows)


@clause("GRF-1")
def test_short_and_long_spans_share_a_bucket(lab: Lab) -> Evidence:
    count, longest = min(4, most(lab)), lab.longest
    if longest < 2:
        raise NotOffered(f"the decoder drafts at most {longest} tokens, so all spans are short")
    hazards = [(f"ticks with {count} requests", AGAIN), ("rounds of 1 drafts", 1), (f"rounds of {longest} drafts", 1)]
    everybody = cast(lab, "GRF-1", [3, 17, 9, 1][:count], [6 * longest] * count)
    lengths = [Step("draft", amount=drafts) for drafts in (1, longest, 2, longest - 1, 1, longest)]
    turns = tuple(step for length in lengths for step in (length, STEP))
    steps = (bucket(LARGE), *submits(*range(count)), STEP, STEP, *turns)
    return padded(lab, [(steps, everybody)], hazards)


@clause("GRF-2")
def test_padded_rows_never_leak(lab: Lab) -> Evidence:
    count, hazards = min(8, most(lab)), speculated(lab)
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
    hazards += [(f"ticks with {count} requests", 1), ("ticks with 1 requests", 1), ("batches that grew or shrank", 1)]
    return padded(lab, [(steps, everybody)], hazards)


@clause("GRF-3")
def test_two_sizes_keep_to_their_own_buffers(lab: Lab) -> Evidence:
    count, hazards = min(6, most(lab)), speculated(lab)
    # They end at unlike times: a budget's last drafts are short, and those beside them are long and go on.
    # Prompts of the first four, and of all six, fill a bucket exactly, where the last row decides a greedy token.
    everybody = cast(lab, "GRF-3", [9, 2, 20, 1, 5, 27][:count], [14, 38, 15, 36, 17, 34][:count])
    turns = tuple(step for rows in (SMALL, LARGE) * 4 for step in (bucket(rows), STEP))
    own = (*submits(*reversed(range(count))), *turns)
    return padded(
        lab,
        [(own, everybody), ((Step("alternate"), *own), everybody)],
        [*hazards, ("rounds in another bucket than the last", 1), (f"ticks with {count} requests", AGAIN)]
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
    return evidence_of(lab, [oscillating(lab, count)], [*oscillated(count), *speculated(lab)])


def oscillated(count: int) -> Hazards:
    return [(f"ticks with {size} requests", WAVES) for size in (-(-count // 2), count)]


@clause("GRF-5")
def test_a_captured_size_serves_any_length(lab: Lab) -> Evidence:
    count = min(3, most(lab))
    window = lab.window if lab.window is not None and lab.window <= FARTHEST else 0
    far = max(2 * CHUNK + 5, window + 3)
    short, long = [3, 9, 1][:count], [far, CHUNK + 1, far - CHUNK][:count]
    everybody = cast(lab, "GRF-5", short + long, [9] * 2 * count)
    waves = (submits(*range(count)), submits(*range(count, 2 * count)))
    steps = (*waves[0], DRAIN, *waves[1], DRAIN, *waves[0], STEP, STEP, *waves[1])
    found = evidence_of(lab, [(steps, everybody)], [(f"ticks with {count} requests", AGAIN), *speculated(lab)])
    reached = [len(request.prompt) for request in everybody]
    guards = [Guard("prompts of more than a chunk", sum(length > CHUNK for length in reached))]
    guards += [Guard("prompts beyond the window", sum(length > window for length in reached))] if window else []
    return replace(found, guards=[*found.guards, *guards])


def captures(decoder: Counted) -> int:
    """How many graphs were captured so far; NotOffered where none are."""
    counters = guarded("counters", decoder.counters)
    if "graph_captures" not in counters:
        raise NotOffered("the decoder counts no graph_captures: it captures no graphs, or does not say so")
    return int(counters["graph_captures"])


@clause("GRF-6")
def test_oscillation_captures_nothing_anew(lab: Lab) -> Evidence:
    count = most(lab)
    drawn, everybody = oscillating(lab, count)
    steps = allowed(lab, drawn)
    with lab.twin.fresh() as decoder:
        captures(decoder)
        for _ in range(2):
            Waves(lab, decoder, everybody).play(steps)
        before = captures(decoder)
        waves = Waves(lab, decoder, everybody)
        waves.play(steps)
        behind = captures(decoder)
    what = "graphs captured behind the same waves once more"
    guards = [Guard("captures", before), *guards_of(lab, oscillated(count), waves.counts)]
    return Evidence("values", [{"what": what, "expected": before, "actual": behind}], guards)


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
    scenes = [drawn(lab, number) for number in range(12 if lab.thorough else 2)]
    hazards = [(f"batches grown past {-(-most(lab) // 2)} requests", WAVES), ("batches that grew or shrank", 1)]
    hazards += speculated(lab)
    if isinstance(lab.decoder, Schedulable):
        hazards += [("buckets set", 1), ("draft lengths set", 1)] if lab.longest else [("buckets set", 1)]
    return evidence_of(lab, scenes, hazards)
