"""`specqual matrix`: the records of one or more runs of the mutants as one kill matrix."""

import argparse
from pathlib import Path


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser("matrix", help="render what runs of the mutants found")
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="folder that `mutants --report` wrote")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="for kill-matrix.md and .html")


def run(args: argparse.Namespace) -> int:
    """Status 0 if every run has killed what it must; a bad record raises BadRecord."""
    from specqual.mutants.matrix import columns, markdown, page

    found = columns(args.folders)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "kill-matrix.md").write_text(markdown(found), encoding="utf-8")
    (args.out / "kill-matrix.html").write_text(page(found), encoding="utf-8")
    for column in found:
        print(f"{column.title}: killed {column.tally.killed} of {len(column.tally.cells)}")
    return 0 if all(column.tally.complete for column in found) else 1
