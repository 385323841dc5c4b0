"""Record what clauses cost: `python -m specqual.conformance.costs quick core` writes costs.json anew, in minutes.

Everything is measured in seconds of the processor, on the nano fixtures, so that other work beside it does not count.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import process_time
from typing import Any

from specqual import fixtures
from specqual.contract import Decoder, Make, Setup, Tokens

from . import estimate
from .check import decided
from .clauses import CLAUSES, ordered
from .lab import Lab, Run
from .options import listed
from .resolve import resolve
from .sight import ANY, visible
from .veil import BlackBox
from .verdicts import Profile, Verdict

PAIR = ("nano/hybrid", "nano/hybrid-dflash2")


@dataclass(slots=True)
class Tally:
    """What went through all decoders of a run so far."""

    tokens: int = 0
    seconds: float = 0.0


def counting(make: Make, tally: Tally) -> Make:
    """The same factory, whose decoders add to the tally with every step."""

    def build(setup: Setup) -> Decoder:
        decoder: Any = make(setup)
        inner = decoder.step

        def step() -> Any:
            before, started = tally.seconds, process_time()
            events = inner()
            tally.seconds = before + process_time() - started  # what a script asked of another decoder is in there
            tally.tokens += sum(len(event.ids) for event in events if isinstance(event, Tokens))
            return events

        decoder.step = step
        return decoder

    return build


def record(profile: Profile) -> dict[str, Any]:
    """Costs of every clause of a profile, and the pace they were met at."""
    tally, target, draft = Tally(), *map(fixtures.path, PAIR)
    run = Run("optimised", counting(resolve("optimised"), tally), Setup(target=target, draft=draft), profile)
    lab = Lab(run)
    pace = estimate.pace(lab, process_time)
    lab.renew()
    veiled = Lab(replace(run, make=lambda setup: BlackBox(run.make(setup))))  # for statistics, where there is no tape
    loose = Lab(replace(run, setup=replace(run.setup, options={"invariant": 0})))  # for flips: it promises no bits
    found = {}
    for name in ordered(listed(profile)):
        before, started = Tally(tally.tokens, tally.seconds), process_time()
        (result,) = decided(lab, [name])
        for other in (veiled, loose):
            if result.verdict is Verdict.SKIPPED and not CLAUSES[name].needs:
                (result,) = decided(other, [name])
        inside = tally.seconds - before.seconds
        beside = process_time() - started - inside
        found[name] = {
            "tokens": tally.tokens - before.tokens,
            "decoder": round(inside, 3),
            "beside": round(beside, 3),
            "kind": result.evidence["kind"],
            "tolerant": visible(result.evidence) not in (ANY, ""),
        }
        print(name, result.verdict, found[name], file=sys.stderr, flush=True)
    for used in (lab, veiled, loose):
        used.renew()
    return {"pace": asdict(pace), "clauses": found}


def main(names: Sequence[str]) -> None:
    """Record the named profiles and keep the others."""
    known = json.loads(estimate.TABLE.read_text()) if estimate.TABLE.exists() else {"profiles": {}}
    for name in names:
        known["profiles"][name] = record(Profile(name))
    estimate.TABLE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
