"""`specqual audit`: compile every GPU kernel for an architecture and see what it costs; no GPU needed."""

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

WIDE = 160


def add_parser(subparsers: Any) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "audit",
        help="compile the GPU kernels ahead of time and check their resources",
        description="Compile every kernel and tile for an architecture, without a GPU, and check shared memory, "
        "registers, spills and matrix instructions.",
    )
    parser.add_argument("--arch", choices=["sm_90a", "sm_120a"], default="sm_120a", help="default: %(default)s")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases with this text in their name")


def run(args: argparse.Namespace) -> int:
    """Status 0 if every kernel keeps within the limits; Unsupported where Triton is missing."""
    from specqual.decoder.gpu import audit, need

    need.triton()
    cases = [case for case in audit.cases() if args.only in case.name]
    if not cases:
        raise ValueError(f"only: no kernel has {args.only!r} in its name")
    table = Table("kernel", "shared", "registers", "spilled", title=args.arch)
    table.add_column("matrix instructions", overflow="fold")
    faults, elsewhere, looked = list[str](), list[str](), list[tuple[audit.Case, audit.Found]]()
    for case in cases:
        if case.only and args.arch not in case.only:
            elsewhere.append(case.name)
            continue
        found = audit.look(case, args.arch)
        looked.append((case, found))
        kinds = ", ".join(audit.short(kind) for kind in found.mma)
        table.add_row(found.name, f"{found.shared:,}", str(found.registers), str(found.spilled), kinds)
        faults += [f"{found.name}: {fault}" for fault in found.faults]
    faults += audit.mixed(looked)
    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = WIDE  # no name is folded in a log
    console.print(table)
    for name in elsewhere:
        console.print(f"not for {args.arch}: {name}")
    for fault in faults:
        console.print(f"FAULT {fault}", markup=False)
    console.print(f"{len(cases) - len(elsewhere)} kernels compiled for {args.arch}, {len(faults)} faults")
    return 1 if faults else 0
