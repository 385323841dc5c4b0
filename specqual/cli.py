"""The `specqual` command: finds its subcommands in `specqual.commands` and turns their errors into one line."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import NoReturn

from . import __version__, commands
from .contract import Unsupported


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like all errors of this command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"specqual: error: {message.removeprefix('argument ')}\n")


def parser() -> Parser:
    """The parser of all subcommands; each module of `specqual.commands` brings `add_parser` and `run`."""
    root = Parser(prog="specqual", description="Qualification of speculative decoding.", allow_abbrev=False)
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in sorted(module.name for module in iter_modules(commands.__path__)):
        import_module(f"{commands.__name__}.{name}").add_parser(subparsers)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status: 2 for bad input, with one line on stderr that names the field."""
    args = parser().parse_args(argv)
    try:
        status: int = import_module(f"{commands.__name__}.{args.command}").run(args)
    except (ValueError, OSError, Unsupported) as error:  # CheckpointError and InvalidRequest are ValueErrors
        print("specqual: error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return status
