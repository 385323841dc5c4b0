"""`specqual verify`: derive every verdict of a finished report again from the evidence in it."""

import argparse
from pathlib import Path

from specqual.conformance.audit import audit

INTEGRITY = (
    "The hash chain is whole. That shows integrity, not authorship: whoever holds the file can write a chain anew. "
    "What speaks for a verdict is the evidence beside it."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser("verify", help="derive the verdicts of a report again")
    parser.add_argument("directory", metavar="DIR", type=Path, help="folder that --report wrote")


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def run(args: argparse.Namespace) -> int:
    """Status 0 if every verdict is derived again, 1 if one does not follow; a bad report raises BadReport."""
    found = audit(args.directory)
    header = found.loaded.header
    for difference in found.differences:
        print(printable(difference))
    if not found.differences:
        print(
            printable(
                f"{found.derived} verdicts derived again, {found.undecided} were skipped or errors: "
                f"{header.get('decoder')} on {header.get('target')}, exit status {found.loaded.footer.get('status')}"
            )
        )
    print(INTEGRITY)
    return 1 if found.differences else 0
