"""Greedy output with speculation is that without it, bit for bit, whatever a scheduler does meanwhile.

    python -m tests.device.bitwise --target small/hybrid --draft small/hybrid-dflash2 --dtype bfloat16 \
        --option device=cuda --tokens 100000 [--seed N] [--minutes M] [--out FILE]

A campaign is a row of blocks, each with decoders and random choices of its own, so that a block replays by itself. In a
block one decoder speculates in batches of 1 to 15 that come and go, while chunks, commit lag, buckets and draft lengths
change and requests are cancelled and preempted; another one, without speculation, serves the same requests in a full
batch. Tokens must be equal, in every second block log-probabilities too. The first difference ends the campaign and is
told with its replay. Status 0: equal, and everything that was to happen did; 1: a difference; 2: too little was seen.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random
from shlex import join
from time import perf_counter
from typing import Any

import torch

from specqual import fixtures
from specqual.contract import FinishReason, Make, Rule, Setup
from specqual.decoder import make

from ..storm import Course
from .gale import CROWD, PROMPTS, Gale, Seen, calm, drawn


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is compared: `tokens` in blocks of `block` each, from block `first` on, within `minutes`."""

    setup: Setup
    tokens: int
    block: int
    seed: int = 0
    first: int = 0
    minutes: float = 60.0
    prompt: int = max(PROMPTS)  # tokens of one prompt, at most
    longest: int = 120  # tokens of one output, at most

    def replay(self, block: int) -> str:
        """The command that runs one block again."""
        setup = self.setup
        command = ["python", "-m", "tests.device.bitwise", "--target", named(setup.target)]
        command += ["--draft", named(setup.draft)] if setup.draft is not None else []
        command += ["--dtype", setup.dtype] if setup.dtype else []
        command += [part for name, value in setup.options.items() for part in ("--option", f"{name}={value}")]
        sizes = {"tokens": 1, "block": self.block, "seed": self.seed, "first": block}
        sizes |= {"prompt": self.prompt, "longest": self.longest}
        return join([*command, *(part for name, value in sizes.items() for part in (f"--{name}", str(value)))])


def named(directory: Path) -> str:
    """The name of a fixture, or the path of anything else."""
    return directory.relative_to(fixtures.ROOT).as_posix() if fixtures.ROOT in directory.parents else str(directory)


def unlike(on: Course, off: Course) -> int | None:
    """The first place where a request says something else, its end included; what is cancelled may end early."""
    (mine,), (theirs,) = on.said, off.said
    cancelled = on.reasons == (FinishReason.CANCELLED,)
    for place, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if one != other:
            return place
    same = on.reasons == off.reasons and len(mine) == len(theirs)
    return None if same or (cancelled and len(mine) <= len(theirs)) else min(len(mine), len(theirs))


def campaign(asked: Campaign, build: Make = make, hear: Callable[[int, Seen], None] = lambda block, seen: None) -> Seen:
    """Run blocks until enough tokens were compared, time is over, or something differs; `hear` is told behind each."""
    started, seen, block = perf_counter(), Seen(), asked.first
    while seen.tokens < asked.tokens and seen.difference is None and perf_counter() - started < 60 * asked.minutes:
        run_block(asked, block, build, seen)
        seen.seconds = perf_counter() - started
        hear(block, seen)
        block += 1
    return seen


def run_block(asked: Campaign, block: int, build: Make, seen: Seen) -> None:
    """One block, added to what was seen."""
    chance, setup = Random(f"{asked.seed}/{block}"), asked.setup
    options = {"samples": CROWD, "prefixes": 48, **setup.options}
    bare = replace(setup, draft=None, rule=Rule.NONE, options=options | {"prefixes": 0})
    on, off = build(replace(setup, options=options)), build(bare)
    vocab = on.claims.limits.vocab_size
    requests = drawn(chance, asked.block, vocab, asked.prompt, asked.longest, told=block % 2 == 0)
    courses, expected = Gale(on, chance, seen).run(requests), calm(off, requests)
    seen.blocks += 1
    for number, ((request_id, course), theirs) in enumerate(zip(courses, expected, strict=True)):
        seen.requests += 1
        seen.tokens += len(course.said[0])
        for one in on.rounds(request_id):  # type: ignore[attr-defined]
            seen.drafted += len(one.proposals)
            seen.accepted += one.accepted
        place = unlike(course, theirs)
        if place is not None and seen.difference is None:
            seen.difference = told(asked, block, number, place, course, theirs, (on, off))
    for decoder in (on, off):
        decoder.close()


def told(
    asked: Campaign, block: int, number: int, place: int, on: Course, off: Course, decoders: tuple[Any, Any]
) -> dict[str, Any]:
    """A difference, and what both arms say when they are asked for that request alone, afterwards."""
    alone = [calm(decoder, [on.request])[0] for decoder in decoders]
    return {
        "what": f"block {block}, request {number}: output token {place} is {at(on, place)} with speculation, and "
        f"{at(off, place)} without",
        "alone": f"{at(alone[0], place)} with speculation, {at(alone[1], place)} without",
        "prompt": list(on.request.prompt),
        "output": [token for token, _ in off.said[0]],
        "ends": [str(on.reasons), str(off.reasons)],
        "replay": asked.replay(block),
    }


def at(course: Course, place: int) -> str:
    (said,) = course.said
    if place >= len(said):
        return "none"
    token, law = said[place]
    return str(token) if law is None else f"{token} ({law!r})"


def result(asked: Campaign, seen: Seen) -> dict[str, Any]:
    """Everything as JSON."""
    setup, cuda = asked.setup, torch.cuda.is_available()
    where = {"target": named(setup.target), "draft": setup.draft and named(setup.draft), "dtype": setup.dtype}
    where |= {"options": dict(setup.options), "device": torch.cuda.get_device_name() if cuda else "cpu"}
    missing = seen.missing(asked.tokens)
    found = {one.name: getattr(seen, one.name) for one in fields(seen)}
    found |= {"seed": asked.seed, "asked": asked.tokens, "missing": missing, "torch": torch.__version__}
    return where | found | {"status": status(seen, missing)}


def status(seen: Seen, missing: Sequence[str]) -> int:
    return 1 if seen.difference is not None else 2 if missing else 0


def options_of(entries: Sequence[str]) -> Mapping[str, str]:
    """`KEY=VALUE` of each entry; ValueError names one that is none."""
    for entry in entries:
        if "=" not in entry:
            raise ValueError(f"--option: must look like KEY=VALUE, got {entry!r}")
    return dict(entry.split("=", 1) for entry in entries)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.device.bitwise", description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="small/hybrid", help="fixture name or directory (default: small/hybrid)")
    parser.add_argument("--draft", default="small/hybrid-dflash2", help="the same (default: small/hybrid-dflash2)")
    parser.add_argument("--dtype", help="of the decoder")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the decoder; repeatable")
    parser.add_argument("--tokens", type=int, default=100_000, help="to compare (default: 100000)")
    parser.add_argument("--block", type=int, default=5_000, help="tokens of a block, about (default: 5000)")
    parser.add_argument("--prompt", type=int, default=max(PROMPTS), help="tokens of a prompt, at most (default: 300)")
    parser.add_argument("--longest", type=int, default=120, help="tokens of an output, at most (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="block to begin with (default: 0)")
    parser.add_argument("--minutes", type=float, default=60.0, help="no block begins behind them (default: 60)")
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    target, draft = (Path(name) if Path(name).is_dir() else fixtures.path(name) for name in (given.target, given.draft))
    setup = Setup(target=target, draft=draft, dtype=given.dtype, options=options_of(given.option))
    asked = Campaign(setup, given.tokens, given.block, given.seed, given.first, given.minutes)
    asked = replace(asked, prompt=given.prompt, longest=given.longest)

    def hear(block: int, seen: Seen) -> None:
        print(f"block {block}: {seen}", flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(result(asked, seen), indent=1))

    seen = campaign(asked, hear=hear)
    found = result(asked, seen)
    if seen.difference is not None:
        print("DIFFERENT:", json.dumps(seen.difference, indent=1))
    elif found["missing"]:
        print("equal, but not seen:", ", ".join(found["missing"]))
    else:
        print("equal, bit for bit:", seen)
    return int(found["status"])


if __name__ == "__main__":
    sys.exit(main())
