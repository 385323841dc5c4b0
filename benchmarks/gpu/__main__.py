"""The GPU decoder at full size on synthetic weights, part by part.

    python -m benchmarks.gpu --out DIR [--part NAME,…] [--geometry NAME]
    python -m benchmarks.gpu --page DIR

Every part writes DIR/NAME.json with all of its trials; one that fails says why in there, and the others go on. `--page`
makes DIR/performance.html of what a folder holds, and needs no GPU. `--dry` runs the same code at nano size in Triton's
interpreter, which says nothing about speed.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Mapping
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


DRY = Sizes("nano/hybrid", ("graphs", "whole rounds"), (1,), (33,), 1, 16, 1, 0, ("nano/dense",), (1,), 6, 2)


def parts(sizes: Sizes, device: torch.device) -> Mapping[str, Callable[[], Any]]:
    """All parts by name, in the order in which they are run."""
    from . import breakdown, memory, peer, small, speed
    from .session import Session

    clock = Clock(device, sizes.trials, sizes.warm)
    samples, context = max(sizes.batches), max(sizes.contexts)
    session = Session.of(sizes.geometry, device, samples, context)

    def planned(batches: tuple[int, ...]) -> speed.Plan:
        accepted = session.pair.span // 2 - 1  # of seven drafts three
        return speed.Plan(sizes.arms, batches, sizes.contexts, sizes.times, accepted)

    def timed(nvfp4_draft: bool, batches: tuple[int, ...]) -> dict[str, Any]:
        rig = session.rig(nvfp4_draft)
        return speed.measure(rig, session.pair, session.store(rig), clock, planned(batches))

    def held() -> dict[str, Any]:
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

    def broken_down() -> list[dict[str, Any]]:
        rig, plan = session.rig(True), planned(sizes.batches)
        store = session.store(rig)
        return [
            breakdown.measure(rig, store, clock, plan, batch, context)
            for batch in dict.fromkeys((sizes.batches[0], sizes.batches[-1]))
        ]

    def compared() -> dict[str, Any]:
        session.drop()
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)  # bfloat16 weights do not fit into what we are limited to
        return peer.measure(session.target_path, clock, sizes.contexts[0], sizes.times)

    def served() -> Any:
        session.drop()
        where = "cuda" if device.type == "cuda" else "interpreter"
        return small.measure(sizes.small, where, clock, sizes.small_batches, sizes.prompt, sizes.tokens)

    return {
        "memory": held,
        "speed": lambda: timed(True, sizes.batches),
        "breakdown": broken_down,
        "stored": lambda: timed(False, sizes.batches[:1]),
        "small": served,
        "transformers": compared,
    }


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
    sizes = DRY if args.dry else Sizes(f"geometry/{args.geometry}", trials=args.trials)
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, args.limit * GIB / there))
    found = parts(sizes, device)
    chosen = args.part.split(",") if args.part else list(found)
    if unknown := set(chosen) - found.keys():
        parser.error(f"part: unknown {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    args.out.mkdir(parents=True, exist_ok=True)
    told = {**about(device, args.commit), "geometry": sizes.geometry, "limit": args.limit}
    return max(run(name, found[name], told, args.out) for name in chosen)


def run(name: str, part: Callable[[], Any], told: Mapping[str, Any], out: Path) -> int:
    """One part into its file; status 1 if it fails."""
    begin, content = perf_counter(), {"part": name, "about": told}
    try:
        content["found"] = part()
    except Exception as error:  # whatever it is, the parts behind it are to run
        traceback.print_exc()
        content["error"] = " ".join(f"{type(error).__name__}: {error}".split())
    content["took"] = perf_counter() - begin
    (out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"{name}: {content.get('error', 'done')}, {content['took']:.0f} s", flush=True)
    return int("error" in content)


if __name__ == "__main__":
    sys.exit(main())
