"""The scenarios: what kind of traffic, on which stage, how often, and which hazards it is there to raise.

What oracles must have looked at stands among the hazards: one that never looks says nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .plan import Draw
from .stretches import barren, far, limits, long_context, stretch
from .traffic import (
    bad_requests,
    conversations,
    counted,
    gaps,
    laws,
    mixed,
    oscillating,
    pressed,
    storm,
    tempered,
    undrafted,
)

OWN = "own"  # the stage of the run's own checkpoints
SPECULATION = ("rounds with drafts", "acceptances", "rejections")
EDGES = ("outputs across a page's edge", "served beside another")
JUDGED = ("tokens judged", "times all was given back")
COMPARED = ("requests served again, alone", "states replayed")
BATCHES = ("batches that grew", "batches that shrank", "schedules changed")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`weight` epochs are this scenario's of one deck in `every`. Each hazard must occur in a run."""

    name: str
    stage: str
    weight: int
    draw: Draw
    hazards: tuple[str, ...]
    every: int = 1


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        Scenario("mixed", "nano", 8, mixed(220), (*SPECULATION, *EDGES, *JUDGED, *COMPARED, "seeds replayed")),
        Scenario("mixed own", OWN, 2, mixed(40), SPECULATION),
        Scenario(
            "buckets", "nano", 4, oscillating(200), ("batches that grew", "batches that shrank", "schedules changed")
        ),
        Scenario("storm", "nano", 8, storm(300), ("cancelled behind a round", "cancelled while waiting", *JUDGED)),
        Scenario("counted", "nano", 1, counted(100), ("times objects were counted", "cancellations", "preemptions")),
        Scenario("storm own", OWN, 1, storm(60), ("cancellations",)),
        Scenario("pressure", "tight", 5, pressed(160), ("preemptions", "waited for room", "cancellations", *JUDGED)),
        Scenario(
            "conversations", "nano", 3, conversations(12, 5), ("turns behind a turn", "prefix hits", *JUDGED, *COMPARED)
        ),
        Scenario("conversations own", OWN, 1, conversations(5, 4), ("turns behind a turn",)),
        Scenario("temperatures", "nano", 4, tempered(160), ("tokens at other temperatures", "tokens under a penalty")),
        Scenario("undrafted", "nano", 2, undrafted(130), ("steps without a draft",)),
        Scenario("rejected", "zeros", 2, barren(11_200), ("steps without an accepted draft",)),
        Scenario("rejected nano", "nano", 1, barren(300), ("steps without an accepted draft",)),
        Scenario("rejected far", "bare", 1, stretch(11_200), ("steps without an accepted draft",), every=3),
        Scenario("limits", "nano", 1, limits(10), ("requests refused", "outputs to the end of the context")),
        Scenario("long own", OWN, 1, long_context(2), ("tokens behind 256 and more",)),
        Scenario("far", "far", 1, far(32_900), ("positions beyond 32,768",)),
        Scenario("bad", "nano", 1, bad_requests(80), ("bad requests",)),
        Scenario("gaps", "nano", 1, gaps(80), ("idle ticks",)),
        Scenario("laws", "table", 12, laws(400), ("tokens under a law", *SPECULATION)),
        Scenario("laws steep", "steep", 3, laws(200), ("tokens under a law", *SPECULATION)),
    )
}


def deck(seed: int, number: int, scenarios: Sequence[Scenario]) -> list[Scenario]:
    """The scenarios of one deck of epochs in their order, as often as they weigh."""
    due = [scenario for scenario in scenarios if number % scenario.every == 0]
    cards = [scenario for scenario in due for _ in range(scenario.weight)]
    Random(f"{seed}/deck/{number}").shuffle(cards)
    return cards
