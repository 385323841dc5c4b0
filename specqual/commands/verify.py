"""`specqual verify`: derive every verdict of a finished report again from the evidence in it."""

import argparse
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from specqual.conformance.adjudicated import Checked, check
from specqual.conformance.audit import Audit, audit
from specqual.conformance.clauses import CLAUSES, ordered
from specqual.conformance.options import listed
from specqual.conformance.report import RENDERINGS, Loaded
from specqual.conformance.sources import SUITE, sources
from specqual.conformance.verdicts import Profile

NOTE = (
    "{whole}, and what the report says hangs together. That shows integrity, not authorship: whoever holds the file "
    "can make up evidence that hangs together, too, and seal it anew. Compare the seal with the one that the run "
    "printed."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser("verify", help="derive the verdicts of a report again")
    what = "folder that --report of a run wrote, or file that --report of adjudicate wrote"
    parser.add_argument("path", metavar="DIR|FILE.json", type=Path, help=what)


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def run(args: argparse.Namespace) -> int:
    """Status 0 if every verdict is derived again, 1 if one does not follow; a bad report raises BadReport."""
    found = check(args.path) if args.path.is_file() else audit(args.path)
    if isinstance(found, Audit):
        found = replace(found, differences=(*found.differences, *stale(args.path, found.loaded)))
    for line in (*found.differences, *(recorded(found) if isinstance(found, Checked) else summary(found))):
        print(printable(line))
    whole = "The seal matches" if isinstance(found, Checked) else "The hash chain is whole"
    print(NOTE.format(whole=whole) if not found.differences else f"{whole}, and what the report says does not hold.")
    return 1 if found.differences else 0


def stale(directory: Path, loaded: Loaded) -> Iterator[str]:
    """Renderings beside a report that are not its own, as far as this is the code that rendered them."""
    lines = [loaded.header, *loaded.verdicts, loaded.footer]
    if loaded.header.get("sources") != sources(*SUITE):
        return
    for name, rendered in RENDERINGS.items():
        path = directory / name
        if path.is_file() and path.read_bytes() != rendered(lines).encode():
            yield f"{name}: is not what this report is rendered as"


def recorded(found: Checked) -> Iterator[str]:
    """What was derived of recorded runs, and of which."""
    content = found.content
    if not found.differences:
        yield f"{found.derived} verdicts derived again: {content['target']}, exit status {content['status']}"
    for name, arm in content["arms"].items():
        yield f"{name}: {arm['file']}, sha256 {arm['sha256']}"
    yield f"seal: {content['seal']}"


def summary(found: Audit) -> Iterator[str]:
    """What was derived, what is believed, and what the report says nothing about."""
    header, footer = found.loaded.header, found.loaded.footer
    if not found.differences:
        yield (
            f"{found.derived} verdicts derived again, {found.undecided} were skipped or errors: "
            f"{header.get('decoder')} on {header.get('target')}, exit status {footer.get('status')}"
        )
    if found.believed:
        yield f"on the word of the run, which nothing in the report bears out: {', '.join(found.believed)}"
    wanted = listed(Profile(header["profile"]))
    left = wanted - set(header["clauses"])
    if left:
        yield f"of the profile {header['profile']}, the report says nothing about {', '.join(grouped(left, wanted))}"
    if header["without"]:
        yield f"not drawn: {', '.join(map(str, header['without']))}"
    yield f"seal: {footer['hash']}"


def grouped(some: Collection[str], every: Iterable[str]) -> Iterator[str]:
    """Clauses in their order; a chapter of which none but these were wanted is named as a whole."""
    for chapter, names in groupby(ordered(every), key=lambda name: CLAUSES[name].chapter):
        family = list(names)
        missing = [name for name in family if name in some]
        yield from [chapter] if missing == family else missing
