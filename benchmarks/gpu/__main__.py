"""The GPU decoder at full size on synthetic weights, part by part.

    python -m benchmarks.gpu --out DIR [--part NAME,…] [--geometry NAME]
    python -m benchmarks.gpu --page DIR

Every part writes DIR/NAME.json with all of its trials; one that fails says why in there, and the others go on. `--page`
makes DIR/performance.html of what a folder holds, and needs no GPU. `--dry` runs the same code at nano size in Triton's
interpreter, which says nothing about speed.
"""

import argparse
import json
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from specqual.contract import Unsupported
from specqual.decoder.gpu.need import device_of

from .clock import TRIALS, WARM, Clock
from .machine import about
from .page import write

GIB = 2**30
Part = Callable[[Callable[[Any], None]], Any]
"""(keep) -> what it finds; `keep` is told what is known so far by parts that take long."""

GEOMETRY = "qwen3.8-27b"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is run, at full size or dry."""

    geometry: str = f"geometry/{GEOMETRY}"
    arms: tuple[str, ...] = ("eager", "graphs", "whole rounds")
    batches: tuple[int, ...] = (1, 8, 15)
    contexts: tuple[int, ...] = (128, 512, 4096)
    times: int = 10  # runs in one timing
    chunk: int = 256  # tokens of a prompt in one pass
    trials: int = TRIALS
    warm: int = WARM
    small: tuple[str, ...] = ("small/hybrid", "small/dense")
    small_batches: tuple[int, ...] = (1, 8)
    prompt: int = 128
    tokens: int = 256
    limit: float = 32.0  # GiB of the process


DRY = Sizes("nano/hybrid", ("graphs", "whole rounds"), (1,), (33,), 1, 16, 1, 0, ("nano/dense",), (1,), 6, 2)


def parts(sizes: Sizes, device: torch.device, limit: Callable[[float], None]) -> Mapping[str, Part]:
    """All parts by name, in the order in which they are run; `limit` gives the process so much of the memory."""
    from . import attention, breakdown, memory, peer, small, speed
    from .session import Session

    clock = Clock(device, sizes.trials, sizes.warm)
    samples, context = max(sizes.batches), max(sizes.contexts)
    ends = [*dict.fromkeys((sizes.batches[0], sizes.batches[-1]))]
    session = Session.of(sizes.geometry, device, samples, context)

    def planned(batches: tuple[int, ...]) -> speed.Plan:
        accepted = session.pair.span // 2 - 1  # of seven drafts three
        return speed.Plan(sizes.arms, batches, sizes.contexts, sizes.times, accepted)

    def timed(nvfp4_draft: bool, batches: tuple[int, ...], keep: speed.Keep) -> dict[str, Any]:
        rig = session.rig(nvfp4_draft)
        return speed.measure(rig, session.pair, session.store(rig), clock, planned(batches), keep)

    def held(keep: speed.Keep) -> dict[str, Any]:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begin = perf_counter()
        rig = session.rig(True)
        loaded, peak = perf_counter() - begin, 0
        if device.type == "cuda":  # loading has buffers of its own, which serving never needs
            peak = torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        found = memory.measure(rig, session.pair, clock, samples, context, sizes.chunk)
        return {"load_seconds": loaded, "load_peak": peak, **found}

    def broken_down(keep: speed.Keep) -> list[dict[str, Any]]:
        rig, plan = session.rig(True), planned(sizes.batches)
        store = session.store(rig)
        return gathered((breakdown.measure(rig, store, clock, plan, batch, context) for batch in ends), keep)

    def side_by_side(keep: speed.Keep) -> list[dict[str, Any]]:
        rig = session.rig(True)
        return gathered(attention.measure(rig, session.store(rig), clock, ends, context, sizes.times), keep)

    def compared(keep: speed.Keep) -> dict[str, Any]:
        session.drop()
        limit(math.inf)  # bfloat16 weights do not fit into what we are limited to
        try:
            return peer.measure(session.target_path, clock, sizes.contexts[0], sizes.times)
        finally:
            limit(sizes.limit)

    def served(keep: speed.Keep) -> list[dict[str, Any]]:
        session.drop()
        where = "cuda" if device.type == "cuda" else "interpreter"
        cells = small.measure(sizes.small, where, clock, sizes.small_batches, sizes.prompt, sizes.tokens)
        return gathered(cells, keep)

    return {
        "memory": held,
        "speed": lambda keep: timed(True, sizes.batches, keep),
        "attention": side_by_side,
        "breakdown": broken_down,
        "stored": lambda keep: timed(False, sizes.batches[:1], keep),
        "small": served,
        "transformers": compared,
    }


def gathered(cells: Iterator[dict[str, Any]], keep: Callable[[Any], None]) -> list[dict[str, Any]]:
    """All cells of a part; `keep` is told of each as soon as it is there."""
    found = list[dict[str, Any]]()
    for cell in cells:
        found.append(cell)
        keep(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("report/gpu"), metavar="DIR", help="(default: report/gpu)")
    parser.add_argument("--part", default="", metavar="NAME,…", help="only these parts")
    parser.add_argument("--geometry", default=GEOMETRY, metavar="NAME")
    parser.add_argument("--limit", type=float, default=32.0, metavar="GIB", help="memory of the process (default: 32)")
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N")
    parser.add_argument("--commit", metavar="ID", help="what is measured, where no git can tell")
    parser.add_argument("--dry", action="store_true", help="nano size in the interpreter: does it run?")
    parser.add_argument("--page", type=Path, metavar="DIR", help="make the page of what a folder holds, and stop")
    args = parser.parse_args()
    if args.page is not None:
        print(write(args.page))
        return 0
    try:
        device = device_of("interpreter" if args.dry else "cuda")
    except Unsupported as error:
        print(error, file=sys.stderr)
        return 2
    assert device is not None
    sizes = DRY if args.dry else Sizes(f"geometry/{args.geometry}", trials=args.trials, limit=args.limit)

    def limit(gib: float) -> None:
        if device.type == "cuda":
            there = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, gib * GIB / there))

    limit(sizes.limit)
    found = parts(sizes, device, limit)
    chosen = args.part.split(",") if args.part else list(found)
    if unknown := set(chosen) - found.keys():
        parser.error(f"part: unknown {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    args.out.mkdir(parents=True, exist_ok=True)
    told = {**about(device, args.commit), "geometry": sizes.geometry, "limit": args.limit}
    return max(run(name, found[name], told, args.out) for name in chosen)


def run(name: str, part: Part, told: Mapping[str, Any], out: Path) -> int:
    """One part into its file, which holds what was found so far if it fails or is killed: status 1."""
    begin, content = perf_counter(), dict[str, Any](part=name, about=told, error="had no end")
    file = out / f"{name}.json"

    def keep(found: Any) -> None:
        content.update(found=found, took=perf_counter() - begin)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=1) + "\n")
        fresh.replace(file)  # at one stroke, whenever it is killed

    try:
        found = part(keep)
        del content["error"]
        keep(found)
    except Exception as error:  # whatever it is, the parts behind it are to run
        traceback.print_exc()
        content["error"] = " ".join(f"{type(error).__name__}: {error}".split())
        keep(content.get("found"))
    print(f"{name}: {content.get('error', 'done')}, {content['took']:.0f} s", flush=True)
    return int("error" in content)


if __name__ == "__main__":
    sys.exit(main())
