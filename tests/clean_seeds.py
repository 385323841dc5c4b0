"""The sound decoder under many seeds: `python -m tests.clean_seeds --seeds 50` prints one line per run.

Every clause whose cases the seed draws, in the quick profile, on nano targets. The exit status is 1 if in any
run a clause is VIOLATED or ends in ERROR, or nothing is decided.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from specqual.conformance.clauses import CLAUSES
from tests.qualification import Pair, results

PAIRS = (
    Pair("nano/dense", "nano/dense-dflash2"),
    Pair("nano/hybrid", "nano/hybrid-dflash"),
    Pair("nano/hybrid", "nano/hybrid-dflash2"),
    Pair("nano/window", "nano/window-dflash2"),
)
# An enumeration, cases that are always the same, and changes that are made to every family of tensors anyway.
WITHOUT_SEED = ("LAW-5", "CKP-1", "CKP-2", "CKP-3", "CKP-5", "ERR-2")
DRAWN = tuple(clause for clause in CLAUSES if clause not in WITHOUT_SEED)
CLEAN = frozenset({"EXACT", "HOLDS", "TIE-EXPLAINED"})
UNCLEAN = frozenset({"VIOLATED", "ERROR"})


@dataclass(frozen=True, slots=True)
class Run:
    """One pair under one seed: verdict by clause, the lines of what was not clean, and its time in seconds."""

    decoder: str
    pair: Pair
    seed: int
    verdicts: dict[str, str]
    complaints: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        return not UNCLEAN.intersection(self.verdicts.values()) and bool(CLEAN.intersection(self.verdicts.values()))

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(self.verdicts.values()).items()))
        first = f"{self.decoder} {self.pair.draft} seed {self.seed}: {'clean' if self.clean else 'NOT CLEAN'}; {counts}"
        return "\n".join([f"{first}; {self.seconds:.0f} s", *(f"    {line}" for line in self.complaints)])


def run(pair: Pair, seed: int, clauses: Sequence[str] = DRAWN, decoder: str = "reference") -> Run:
    """Run the suite against a decoder under one seed."""
    started = perf_counter()
    found: dict[str, dict[str, Any]] = results(decoder, pair, clauses, seed)
    verdicts = {clause: line["verdict"] for clause, line in found.items()}
    complaints = (
        f"{clause} {line['verdict']}: {line['detail']}"
        for clause, line in found.items()
        if line["verdict"] not in CLEAN
    )
    return Run(decoder, pair, seed, verdicts, tuple(complaints), perf_counter() - started)


def runs(seeds: Iterable[int], pairs: Sequence[Pair] = PAIRS, decoder: str = "reference") -> Iterable[Run]:
    """Every seed on every pair, in order."""
    return (run(pair, seed, decoder=decoder) for seed in seeds for pair in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.clean_seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many (default: 50)")
    parser.add_argument("--first", type=int, default=1, help="the first one (default: 1; 0 is the suite's own)")
    drafts = [pair.draft for pair in PAIRS]
    parser.add_argument("--draft", choices=drafts, nargs="+", default=drafts, help="which pairs (default: all)")
    parser.add_argument("--decoder", default="reference", help="whose (default: reference)")
    options = parser.parse_args(arguments)
    pairs = [pair for pair in PAIRS if pair.draft in options.draft]
    done = []
    for one in runs(range(options.first, options.first + options.seeds), pairs, options.decoder):
        print(one, flush=True)
        done.append(one)
    total = Counter(verdict for one in done for verdict in one.verdicts.values())
    unclean = sum(not one.clean for one in done)
    print(f"{len(done)} runs, {unclean} not clean; " + ", ".join(f"{n} {v}" for v, n in sorted(total.items())))
    return 1 if unclean else 0


if __name__ == "__main__":
    sys.exit(main())
