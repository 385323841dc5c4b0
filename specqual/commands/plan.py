"""`specqual plan`: which batch and context fit into a GPU's memory, from the configurations alone."""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
BATCHES = (1, 2, 4, 8, 15, 16, 32, 64, 128)
GIB = 2**30


def add_parser(subparsers: Any) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "plan",
        help="feasible batch and context for a GPU's memory",
        description="Add up what the GPU decoder holds, and print the longest context for each batch, with the drafter "
        "as stored and in NVFP4. Reads config.json alone. Status 0 if the wanted batch and context fit.",
    )
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint of the target")
    parser.add_argument("--draft", type=Path, metavar="DIR", help="checkpoint of a drafter")
    parser.add_argument("--memory", required=True, metavar="SIZE", help="of the device, for instance 32GiB")
    parser.add_argument("--batch", type=int, default=15, metavar="N", help="requests wanted at once (%(default)s)")
    parser.add_argument("--context", type=int, default=4096, metavar="N", help="tokens wanted of each (%(default)s)")
    parser.add_argument(
        "--prefixes", type=int, default=0, metavar="N", help="chunks that a prefix cache keeps (%(default)s)"
    )
    parser.add_argument("--kv", choices=["stored", "fp8"], default="stored", help="the target's cache (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Print the sum for what is wanted, and what else fits; status 1 if the wanted does not fit."""
    from specqual.contract.checkpoint import read_draft, read_target
    from specqual.decoder.gpu.budget import Load, Pair, budget, longest_context, total
    from specqual.decoder.options import Options

    memory = size_of(args.memory)
    target, quantisation = read_target(args.target)
    if args.batch < 1:
        raise ValueError(f"batch: must be at least 1, got {args.batch}")
    if args.prefixes < 0:
        raise ValueError(f"prefixes: must be at least 0, got {args.prefixes}")
    if not 1 <= args.context <= target.max_context:
        raise ValueError(f"context: must be between 1 and the target's {target.max_context}, got {args.context}")
    pair, kinds = Pair(target, quantisation), {"without a drafter": False}
    if args.draft is not None:
        draft, draft_quantisation = read_draft(args.draft, target)
        pair = Pair(target, quantisation, draft, draft_quantisation)
        kinds = {"drafter as stored": False, "drafter in NVFP4": True}
    fp8 = args.kv == "fp8"
    wanted = {name: Load(args.batch, args.context, narrow, fp8, args.prefixes) for name, narrow in kinds.items()}

    console = Console(soft_wrap=True, highlight=False)
    sums = {name: {item.name: item.bytes for item in budget(pair, load)} for name, load in wanted.items()}
    table = Table("GiB", *kinds, title=f"{args.batch} requests of {args.context:,} tokens")
    places = [(place, line) for items in sums.values() for place, line in enumerate(items)]
    for line in dict.fromkeys(line for _, line in sorted(places, key=lambda found: found[0])):
        table.add_row(line, *(f"{items[line] / GIB:.3f}" if line in items else "" for items in sums.values()))
    table.add_section()
    totals = {name: sum(items.values()) for name, items in sums.items()}
    table.add_row("sum", *(f"{size / GIB:.3f}" for size in totals.values()))
    table.add_row("left", *(f"{(memory - size) / GIB:.3f}" for size in totals.values()))
    console.print(table)
    (name, load), kept = next(iter(wanted.items())), Options().prefixes
    if more := 0 if args.prefixes else total(pair, replace(load, prefixes=kept)) - totals[name]:
        told = f"without a prefix cache; with {kept} chunks, the decoder's default, {more / GIB:.3f} GiB more"
        console.print(f"{told} (--prefixes {kept})")

    reach = Table("requests", *kinds, title=f"longest context in {memory / GIB:.2f} GiB")
    for batch in BATCHES:
        found = [longest_context(pair, replace(load, batch=batch), memory) for load in wanted.values()]
        reach.add_row(str(batch), *(f"{context:,}" if context else "none" for context in found))
    console.print(reach)
    fits = [name for name, size in totals.items() if size <= memory]
    what = f"{args.batch} × {args.context:,}"
    console.print(f"{what} fits: {', '.join(fits)}" if fits else f"{what} does not fit")
    return 0 if fits else 1


def size_of(text: str) -> int:
    """Bytes of a size like 32GiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in UNITS:
        raise ValueError(f"memory: must be a size like 32GiB or 16GB, got {text!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])
