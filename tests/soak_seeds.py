"""Sound runs under many seeds: `python -m tests.soak_seeds --seeds 20 --minutes 3` prints a table in Markdown.

No run may accuse the decoder. A run of minutes leaves hazards and leaks open; that is told, and is no accusation.
"""

import argparse
import sys
from collections.abc import Sequence
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory

from specqual import fixtures
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.soak.about import About
from specqual.soak.journal import Journal
from specqual.soak.night import Night, judged
from specqual.soak.run import Soak
from specqual.soak.scenarios import SCENARIOS


def sound(seed: int, minutes: float, workers: int, target: str, draft: str) -> Night:
    """The verdict of one run of the optimised decoder."""
    setup = Setup(target=fixtures.path(target), draft=fixtures.path(draft))
    with TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder) / "journal")
        Soak(About("optimised", setup, seed, tuple(SCENARIOS)), journal, workers, 60 * minutes).run()
        found = judged(journal)
        journal.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Status 0 if no run says VIOLATED or ERROR of anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many, from 1 on (default: 20)")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each (default: 3)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--target", default="small/hybrid", help="fixture (default: small/hybrid)")
    parser.add_argument("--draft", default="small/hybrid-dflash2", help="fixture (default: small/hybrid-dflash2)")
    options = parser.parse_args(arguments)
    print("| seed | traffic | requests | tokens | log10 E | accused of |\n|---|---|---|---|---|---|", flush=True)
    clean = True
    for seed in range(1, options.seeds + 1):
        found = sound(seed, options.minutes, options.workers, options.target, options.draft)
        bad = [name for name, one in found.decisions.items() if one.verdict in (Verdict.VIOLATED, Verdict.ERROR)]
        clean &= not bad
        counts = " | ".join(f"{found.counts.get(name, 0):,}" for name in ("requests", "tokens"))
        told = found.decisions["traffic"].verdict, counts, f"{found.log_e / log(10):.2f}", ", ".join(bad) or "nothing"
        print(f"| {seed} | {' | '.join(told)} |", flush=True)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
