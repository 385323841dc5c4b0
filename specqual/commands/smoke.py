"""`specqual smoke`: for adapter authors, seconds instead of minutes."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

import specqual.conformance
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.library import folder
from specqual.conformance.options import free
from specqual.conformance.resolve import BUILT_IN, resolve
from specqual.conformance.smoke import walk
from specqual.conformance.smoke_protocols import PROTOCOLS, decidable
from specqual.contract import Rule, Setup

from .verify import printable

MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("–", "dim")}
TEMPLATE = Path(specqual.conformance.__path__[0]) / "template.py"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser(
        "smoke",
        help="try an adapter before the suite does",
        description="Walk through an adapter: claims, submit, step, cancel, errors, and each optional protocol.",
    )
    parser.add_argument("--decoder", metavar="NAME", help=f"package.module:make, or {', '.join(BUILT_IN)}")
    parser.add_argument("--target", metavar="DIR", help="checkpoint of the target")
    parser.add_argument("--draft", metavar="DIR", help="checkpoint of a drafter")
    parser.add_argument("--rule", choices=[str(rule) for rule in Rule], default=str(Rule.RATIO))
    parser.add_argument("--draft-length", type=int, metavar="K", help="drafts of one round")
    parser.add_argument("--dtype", metavar="DTYPE", help="dtype of the decoder")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="option of the decoder")
    parser.add_argument("--template", action="store_true", help="print an adapter to start from, and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print what works and what is missing; status 0 if all that is there works, else 1."""
    if args.template:
        print(TEMPLATE.read_text(encoding="utf-8"), end="")
        return 0
    if args.decoder is None or args.target is None:
        raise ValueError("--decoder and --target: are needed (or --template)")
    make = resolve(args.decoder)
    setup = Setup(
        target=folder("--target", args.target),
        draft=None if args.draft is None else folder("--draft", args.draft),
        rule=Rule(args.rule),
        draft_length=args.draft_length,
        dtype=args.dtype,
        options=free(args.option),
    )
    console, broken, offered, reached = Console(), 0, set[str](), set[str]()
    for found in walk(make, setup):
        mark, style = MARKS[found.works]
        console.print(Text(mark, style=style), f"{found.what:<12}", Text(printable(found.said)), soft_wrap=True)
        broken += found.works is False
        reached.add(found.what)
        if found.works and found.what in PROTOCOLS:
            offered.add(found.what)
    if broken:
        tail = "" if "close" in reached else "; what comes behind was not tried"
        console.print(f"{broken} {'mistake' if broken == 1 else 'mistakes'}{tail}")
        return 1
    console.print(f"{decidable(offered)} of {len(CLAUSES)} clauses need nothing beyond what this adapter offers")
    return 0
