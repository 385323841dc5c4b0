"""`specqual merge`: the reports of several shards of one run as one report."""

import argparse
from pathlib import Path

from specqual.conformance.merge import merge

from .verify import printable


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser(
        "merge",
        help="join the reports of several shards of one run",
        description="Join reports that differ in their clauses only, such as chapters run on different machines.",
    )
    parser.add_argument("directories", nargs="+", metavar="DIR", type=Path, help="folders that --report wrote")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="where the joint report goes")


def run(args: argparse.Namespace) -> int:
    """Merge; the exit status is that of the whole run, 2 for reports that do not belong together."""
    lines = merge(args.directories, args.out)
    footer = lines[-1]
    counts = ", ".join(f"{verdict} {count}" for verdict, count in footer["counts"].items())
    print(printable(f"{footer['verdicts']} verdicts of {len(args.directories)} reports: {counts}"))
    print(printable(f"{args.out}: exit status {footer['status']}"))
    return int(footer["status"])
