"""How long a soak run takes to find each planted fault: `python -m tests.soak_faults` prints a table in Markdown.

Each fault is planted in the decoder of a whole run, all scenarios in their usual order, in one process; the time is the
process's own, so that neighbours do not count.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import torch

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.soak.about import About
from specqual.soak.journal import Journal
from specqual.soak.night import judged
from specqual.soak.records import Served
from specqual.soak.scenarios import SCENARIOS
from specqual.soak.worker import World

FAULTS = {
    "hours:leak": "one page lost per 500 cancellations",
    "hours:dirty": "the slot of a cancelled request handed on dirty",
    "hours:wrap": "an index that wraps at step 32,768",
    "hours:lean": "0.005 of total variation in the emitted law",
    "graphs:m25g": "graphs that thrash",
    "hours:drift": "a recurrent state that drifts by 1e-3 in 10,000 steps",
    "pool:m18a": "a prefix hit that leaves a hole in the drafter's context",
}


@dataclass(frozen=True, slots=True)
class Search:
    """What it took to find one fault; `oracle` is empty where it was not found."""

    fault: str
    oracle: str
    scenario: str
    epochs: int
    requests: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        found = f"{self.oracle}, in {self.scenario}" if self.oracle else "not found"
        return (
            f"| {self.fault} | {found} | {self.epochs} | {self.requests:,} | {self.tokens:,} | {self.seconds:.0f} s |"
        )


def search(name: str, seed: int, most: int) -> Search:
    """Run epochs with this fault until something is found, or so many are through."""
    setup = Setup(target=fixtures.path("nano/hybrid"), draft=fixtures.path("nano/hybrid-dflash2"))
    about = About(f"specqual.mutants.{name}", setup, seed, tuple(SCENARIOS))
    world, began, requests, tokens = World(about), process_time(), 0, 0
    with TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder) / "journal")
        segment = journal.begin(about.json())
        for count, task in enumerate(about.tasks(), start=1):
            epoch = world.play(task).epoch
            journal.add(segment, epoch, Served(0, 0.0, 0.0, 0.0))
            requests, tokens = (
                total + epoch.counts.get(what, 0) for total, what in ((requests, "requests"), (tokens, "tokens"))
            )
            oracle = epoch.violations[0].oracle if epoch.violations else ""
            if not oracle and epoch.evidence and judged(journal).decisions["laws"].verdict is Verdict.VIOLATED:
                oracle = "law"
            if oracle or count == most:
                break
        journal.close()
    world.close()
    return Search(FAULTS[name], oracle, task[0], count, requests, tokens, process_time() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """Status 0 if each fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_faults", description=__doc__)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument("--most", type=int, default=300, help="epochs before giving up (default: 300)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| fault | found by | epochs | requests | tokens | process time |\n|---|---|---|---|---|---|", flush=True)
    found = True
    for name in options.faults:
        result = search(name, options.seed, options.most)
        found &= bool(result.oracle)
        print(result, flush=True)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
