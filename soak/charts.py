"""What a journal shows as plots; each chart comes from what was recorded, and is missing where nothing was."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log, log10

from specqual.conformance.charts import Chart
from specqual.conformance.plot import Plot, decades, linear, named
from specqual.conformance.statistics import mean, product

from .gauges import AT_REST
from .journal import Journal, added
from .night import mixed, tallied
from .scenarios import OWN, SCENARIOS
from .series import Life, Segments

MOST_POINTS = 240  # of one line
LINES = 6  # that have a colour of their own
DRAFTED, ACCEPTED = "drafted by length", "accepted by length"  # histograms
LOOKS = 60  # at the evidence of one test
EVIDENCE = ("all epochs together", "product over epochs", "mean of epochs")  # lines of one test
LEAST = -12.0  # log10 of the smallest e-value that is drawn
HOUR = 3600.0
Path = list[tuple[float, float]]


def thinned(path: Sequence[tuple[float, float]]) -> Path:
    """At most `MOST_POINTS` of these, the last one among them: of each stretch the point furthest from the middle of
    the whole, so that no peak is lost."""
    step = -(-len(path) // MOST_POINTS)
    if step <= 1:
        return list(path)
    heights = sorted(y for _, y in path)
    middle = heights[len(heights) // 2]
    parts = (path[place : place + step] for place in range(0, len(path), step))
    found = [max(part, key=lambda point: abs(point[1] - middle)) for part in parts]
    return found if found[-1] == path[-1] else [*found, path[-1]]


def over_time(
    id: str, title: str, unit: str, lines: Mapping[str, Sequence[tuple[float, float]]], hours: float, caption: str
) -> Chart | None:
    """Lines over the hours that the run was on; processes beyond the last colour share it."""
    lines = {name: path for name, path in lines.items() if path}
    if not lines:
        return None
    heights = [y for path in lines.values() for _, y in path]
    low, high = min(heights), max(heights)
    low = 0.0 if low >= 0 and (low < 0.5 * high or low == high) else low
    short = hours < 0.5
    across = linear("minutes" if short else "hours", 0, hours * (60 if short else 1))
    plot = Plot(title, across, linear(unit, low, high if high > low else low + 1))
    for number, (name, path) in enumerate(lines.items()):
        points = thinned([(x * (60 if short else 1), y) for x, y in path])
        plot.line(points * (2 if len(points) == 1 else 1), number, f"{name}: {path[-1][1]:,.6g} at last")
    return Chart(id, title, plot.markup(), caption, tuple(lines)[:LINES])


def by_process(all_lives: Sequence[Life], name: str, clock: Segments) -> dict[str, Path]:
    """One gauge over the hours, by process."""
    found = {}
    for number, life in enumerate(all_lives, start=1):
        path = [(clock(time) / HOUR, value) for time, value in life.of(name)]
        if path:
            found[f"process {number}, worker {life.worker}"] = path
    return found


def by_decoder(all_lives: Sequence[Life], kind: str, clock: Segments) -> dict[str, Path]:
    """The gauges of one kind over the hours, by what the decoder stands on, all processes together."""
    found: dict[str, Path] = {}
    for life in all_lives:
        for time, read in life.moments:
            for name, value in read.items():
                if name.startswith(f"{kind} "):
                    found.setdefault(name.removeprefix(f"{kind} "), []).append((clock(time) / HOUR, value))
    return {name: sorted(path) for name, path in sorted(found.items()) if any(value for _, value in path)}


def in_shares(all_lives: Sequence[Life], kind: str, clock: Segments) -> dict[str, Path]:
    """As `by_decoder`, in shares of the most that was ever seen of each: pools are of all sizes."""
    found = by_decoder(all_lives, kind, clock)
    most = {name: max(y for _, y in path) for name, path in found.items()}
    return {name: [(x, y / most[name]) for x, y in path] for name, path in found.items()}


def acceptance(journal: Journal) -> Chart | None:
    """Drafts accepted per round by what had been generated, in each half of the epochs; of those with the run's own
    checkpoints, where it had any."""
    query = """SELECT h.scenario, h.name, h.bins FROM histograms h JOIN epochs p ON p.scenario = h.scenario
        AND p.epoch = h.epoch WHERE h.name IN (?, ?) ORDER BY p.started, h.name DESC"""
    rows = journal.connection.execute(query, (DRAFTED, ACCEPTED)).fetchall()
    own = [row for row in rows if row[0] in SCENARIOS and SCENARIOS[row[0]].stage == OWN] or rows
    title, middle = "Acceptance against generated length", len(own) // 2
    halves = {"first half of the run": own[:middle], "second half": own[middle:]}
    sums = {
        half: [added(json.loads(bins) for _, name, bins in part if name == wanted) for wanted in (DRAFTED, ACCEPTED)]
        for half, part in halves.items()
    }
    edges = sorted({int(edge) for drafted, _ in sums.values() for edge in drafted})
    if not edges:
        return None
    paths = {
        half: [(place, accepted.get(str(e), 0) / drafted[str(e)]) for place, e in enumerate(edges) if str(e) in drafted]
        for half, (drafted, accepted) in sums.items()
    }
    names = [f"{e // 1024}k" if e >= 1024 else str(e) for e in edges]
    top = max(y for path in paths.values() for _, y in path)
    across = named("tokens generated before the round, from", names)
    plot = Plot(title, across, linear("drafts accepted per round", 0, top))
    for number, (half, path) in enumerate(paths.items()):
        if path:
            plot.line(path * (2 if len(path) == 1 else 1), number, half)
    rounds = sum(sum(drafted.values()) for drafted, _ in sums.values())
    caption = (
        f"Mean of {rounds:,} rounds with drafts{'' if own is rows else ' of the run’s own checkpoints'}. A fall to the "
        "right says that drafts get worse with length; a gap between the lines, that they get worse with the hours."
    )
    return Chart("acceptance-length", title, plot.markup(), caption, tuple(paths))


def regrets(bins: Mapping[str, int]) -> Chart | None:
    """Histogram of the regrets that were judged."""
    if not bins:
        return None
    edges = sorted(bins, key=edge)
    title = "Regret of judged tokens"
    plot = Plot(title, named("regret, nats, from", edges), decades("tokens", max(bins.values())))
    for place, name in enumerate(edges):
        if bins[name]:
            plot.bar(place, log10(bins[name]), f"{bins[name]:,}")
    caption = (
        f"Best log-probability minus the emitted token's, under its own prefix, of {sum(bins.values()):,} tokens that "
        "the reference was asked about."
    )
    return Chart("regret", title, plot.markup(), caption)


def edge(name: str) -> float:
    """A bin's lower edge; what is no number is beyond all others."""
    try:
        return float(name)
    except ValueError:
        return float("inf")


def evidence(journal: Journal, enough: float) -> list[Chart]:
    """How log10 E of each test grew: of the counts of all epochs together, and the epochs' own as product and mean."""
    sizes = Counter(one.test for _, _, one in journal.increments())
    by_test = {test: {name: Path([(0.0, 0.0)]) for name in EVIDENCE} for test in sorted(sizes)}
    for one, tallies in tallied(journal):
        tally, size = tallies[one.test], sizes[one.test]
        if len(tally.own) % -(-size // LOOKS) == 0 or len(tally.own) == size:
            values = mixed(tally.grown.values()), product(tally.own), mean(tally.own)
            for path, value in zip(by_test[one.test].values(), values, strict=True):
                path.append((tally.samples / 1000, max(value / log(10), LEAST)))
    found = list[Chart]()
    for test, paths in by_test.items():
        samples, _ = max(path[-1] for path in paths.values())
        heights = [y for path in paths.values() for _, y in path]
        top, title = max(*heights, enough / log(10)), f"{test}: evidence against the law"
        plot = Plot(title, linear("samples, thousands", 0, samples, 4), linear("e-value, log10", min(heights), top))
        plot.rule(enough / log(10), "enough to reject")
        for number, (name, path) in enumerate(paths.items()):
            plot.line(path, number, f"{name}: {path[-1][1]:.2f} at last")
        caption = (
            "An e-value is what fair bets against the claimed law have won; if the claim is true, it is unlikely to "
            f"grow, whenever one stops. What is below {LEAST:g} is drawn there."
        )
        found.append(Chart(f"evidence-{len(found) + 1}", title, plot.markup(), caption, tuple(paths)))
    return found


GAUGES = (
    ("throughput", by_process, "tokens/s", "Throughput", "tokens per second", "Tokens that came, oracles included."),
    ("memory", by_process, "memory", "Memory of the processes", "MB", "Resident."),
    (
        "rest",
        by_process,
        AT_REST,
        "Memory of the processes at rest",
        "MB",
        "While nobody is served, garbage gone. Its slope behind the warm-up counts.",
    ),
    ("device-memory", by_process, "device memory", "Memory on the device", "MB", "What tensors hold there."),
    (
        "pages",
        in_shares,
        "free pages",
        "Free pages",
        "share of each pool",
        "Free, or to be had from a prefix cache.",
    ),
    ("slots", in_shares, "free slots", "Free slots", "share of each pool", "Recurrent slots, free or to be had back."),
    ("queue", by_process, "queue", "Requests under way", "requests", "Submitted and not ended."),
    (
        "captures",
        by_decoder,
        "graph captures",
        "Graph captures",
        "captures",
        "Once all shapes are seen, there are none.",
    ),
)
"""What is drawn over time: id, how its lines are found, gauge, title, unit and caption."""


def charts(journal: Journal, all_lives: Sequence[Life], clock: Segments, enough: float) -> list[Chart]:
    """Every chart that a journal has data for."""
    hours = max(clock.seconds, 1.0) / HOUR
    found = [acceptance(journal)]
    for id, lines, gauge, title, unit, caption in GAUGES:
        found.append(over_time(id, title, unit, lines(all_lives, gauge, clock), hours, caption))
    found += [*evidence(journal, enough), regrets(journal.histogram("regret"))]
    return [chart for chart in found if chart is not None]
