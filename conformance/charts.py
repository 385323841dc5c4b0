"""What a report shows as plots: acceptance, regret and the growth of evidence, each from the recorded lines alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum, log, log10, sqrt
from typing import Any

from markupsafe import Markup

from .clauses import ordered
from .kinds.counts import enough
from .plot import Plot, decades, linear, named

Line = dict[str, Any]
NORMAL = 1.96  # of a 95 % interval
EDGES = (1e-12, 1e-9, 1e-6, 1e-3, 1e-2, 1e-1, 1.0)  # nats
BINS = 8


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot with the sentence that says how to read it, and the names of its lines."""

    id: str
    title: str
    svg: Markup
    caption: str
    legend: tuple[str, ...] = ()


def charts(verdicts: Sequence[Line]) -> list[Chart]:
    """Every chart that these lines of a report have data for."""
    rounds = [tuple(r) for line in verdicts for r in line["evidence"]["notes"].get("rounds", ()) if r[1]]
    found = [by_position(rounds), by_length(rounds), regrets(verdicts)]
    return [chart for chart in chain(found, map(trajectory, verdicts)) if chart is not None]


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share, Wilson's."""
    share, z = successes / trials, NORMAL**2
    middle = (share + z / (2 * trials)) / (1 + z / trials)
    half = NORMAL * sqrt(share * (1 - share) / trials + z / (4 * trials**2)) / (1 + z / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def by_position(rounds: Sequence[tuple[int, int, int]]) -> Chart | None:
    """How often the draft at each position was accepted, of the rounds that drafted it."""
    if not rounds:
        return None
    longest = max(drafted for _, drafted, _ in rounds)
    title = "Acceptance per draft position"
    plot = Plot(title, named("position of the draft", [str(i + 1) for i in range(longest)]), linear("accepted", 0, 1))
    for place in range(longest):
        trials = [accepted > place for _, drafted, accepted in rounds if drafted > place]
        share, (low, high) = sum(trials) / len(trials), wilson(sum(trials), len(trials))
        plot.dot(place, share, low, high, f"position {place + 1}: {sum(trials)} of {len(trials)} rounds, {share:.3f}")
    caption = (
        f"Share of the rounds that drafted a position in which its draft was accepted, {len(rounds)} rounds of LIVE-1; "
        "bars are 95 % intervals that take rounds as independent."
    )
    return Chart("acceptance-position", title, plot.markup(), caption)


def by_length(rounds: Sequence[tuple[int, int, int]]) -> Chart | None:
    """Drafts accepted per round against how much had been generated when the round began."""
    if not rounds:
        return None
    width = max(1, -(-(max(generated for generated, _, _ in rounds) + 1) // BINS))
    bins: dict[int, list[int]] = {}
    for generated, _, accepted in rounds:
        bins.setdefault(generated // width, []).append(accepted)
    rows = []
    for place, values in sorted(bins.items()):
        mean = sum(values) / len(values)
        spread = sqrt(fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else mean
        half = NORMAL * spread / sqrt(len(values))
        rows.append(((place + 0.5) * width, mean, max(0.0, mean - half), mean + half, len(values)))
    title = "Acceptance against generated length"
    across = linear("tokens generated before the round", 0, (max(bins) + 1) * width)
    plot = Plot(title, across, linear("drafts accepted per round", 0, max(high for *_, high, _ in rows)))
    for x, mean, low, high, count in rows:
        plot.dot(x, mean, low, high, f"{count} rounds, {mean:.3f} accepted")
    caption = f"Mean per round, in steps of {width} tokens, with 95 % intervals. A fall says that drafts get worse."
    return Chart("acceptance-length", title, plot.markup(), caption)


def regrets(verdicts: Sequence[Line]) -> Chart | None:
    """Histogram of regrets, by power of ten."""
    counts, envelope = Counter[int](), 0.0
    judging = [
        line for line in verdicts if line["evidence"]["kind"] in ("greedy", "flips") and line["evidence"]["cases"]
    ]
    for line in judging:
        for case in line["evidence"]["cases"]:
            envelope = max(envelope, float(case["envelope"]))
            for best, own in zip(case["best"], case["logprob"], strict=True):
                regret = float("inf") if own is None else best - own
                counts[sum(regret > edge for edge in EDGES)] += 1
    if not counts:
        return None
    title = "Regret of greedy tokens"
    names = ["0", *(f"{edge:g}" for edge in EDGES[1:]), "more"]
    plot = Plot(title, named("regret up to, nats", names), decades("tokens", max(counts.values())))
    for place, count in sorted(counts.items()):
        plot.bar(place, log10(count), f"{count:,}")
    caption = (
        f"Best log-probability minus the emitted token's, under its own prefix, of {counts.total():,} tokens "
        f"judged by {', '.join(ordered(line['clause'] for line in judging))}. Rounding explains at most "
        f"{envelope:.3g} nats here."
    )
    return Chart("regret", title, plot.markup(), caption)


def trajectory(line: Line) -> Chart | None:
    """Evidence against a clause as it grew with the samples."""
    cases = [case for case in line["evidence"]["cases"] if case.get("trajectory")]
    if not cases:
        return None
    paths = [[(float(x), float(y)) for x, y in case["trajectory"]] for case in cases]
    limit = enough(min(float(case["alpha"]) for case in cases)) / log(10)
    heights = [y for path in paths for _, y in path]
    title = f"{line['clause']}: evidence against the claimed law"
    across = linear("samples", 0, max(x for path in paths for x, _ in path), 4)
    top = max(*heights, limit)
    plot = Plot(title, across, linear("e-value, log10", min(*heights, 0.0), top))
    plot.rule(limit, "enough to reject")
    labels = tuple(str(case.get("label", "")) for case in cases)
    for number, (path, label) in enumerate(zip(paths, labels, strict=True)):
        plot.line(path, number, label)
    caption = (
        "Each request by itself; their mean decides. An e-value is what a fair bet against the claim has won: if the "
        "claim is true, it is unlikely to grow, whenever one stops."
    )
    return Chart(f"trajectory-{line['clause']}", title, plot.markup(), caption, labels)
