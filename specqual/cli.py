"""The `specqual` command: finds its subcommands in `specqual.commands` and turns their errors into one line."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NoReturn

from specqual.contract import Unsupported

from . import __version__, commands

READER_GONE = 141  # what a shell reports of a command that a closed pipe ended


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like all errors of this command; options are written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"specqual: error: {message.removeprefix('argument ')}\n")


def parser() -> Parser:
    """The parser of all subcommands; each module of `specqual.commands` brings `add_parser` and `run`."""
    root = Parser(prog="specqual", description="Qualification of speculative decoding.")
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
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed on the way out
        return READER_GONE
    except (ValueError, OSError, Unsupported) as error:  # CheckpointError and InvalidRequest are ValueErrors
        print("specqual: error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return status
