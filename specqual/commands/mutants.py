"""`specqual mutants`: does the suite see faults? Every mutant is run until a clause that owns it is VIOLATED."""

import argparse
import os
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from specqual.conformance.verdicts import Profile


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser("mutants", help="run decoders with one known fault each, and see them caught")
    parser.add_argument("--only", metavar="ID", action="append", default=[], help="this mutant or control; repeatable")
    parser.add_argument("--kind", metavar="K03", action="append", default=[], help="mutants of this kind; repeatable")
    parser.add_argument("--profile", choices=list(map(str, Profile)), default="quick", help="how much (default: quick)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of every random choice (default: 0)")
    parser.add_argument("--workers", metavar="N", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument(
        "--level", choices=["L1", "L2", "L3"], default="L3", help="what is to be seen of a decoder (default: L3)"
    )
    parser.add_argument("--all", action="store_true", help="run every clause, for the symptom index")
    parser.add_argument("--limit", metavar="SECONDS", type=float, help="of one mutant (default: 900; 60 at L1 and L2)")
    parser.add_argument(
        "--report", metavar="DIR", type=Path, help="write mutants.jsonl there, or continue the run in it"
    )


def run(args: argparse.Namespace) -> int:
    """Status 0 if every mutant was killed and every control passes; at L1 and L2 none has to be killed."""
    from specqual.mutants.judgement import Fate, Tally
    from specqual.mutants.kill import kill
    from specqual.mutants.levels import Level
    from specqual.mutants.plan import Wanted, chosen
    from specqual.mutants.record import Record
    from specqual.mutants.trial import Outcome, Role, Trial

    if args.workers < 1:
        raise ValueError(f"--workers: must be at least 1, got {args.workers}")
    mutants, controls = chosen(args.only, args.kind)
    wanted = Wanted(mutants, controls, Profile(args.profile), args.seed, Level(args.level), args.all, args.limit)
    record, started, console = Record.open(wanted, args.report), monotonic(), Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown: Any = Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal)
    counted = (Role.MUTANT, Role.CONTROL)
    with shown as progress:
        task = progress.add_task(
            "mutants",
            total=len(mutants) + len(controls),
            completed=sum(one.role != Role.CLEAN for one in record.outcomes),
        )

        def told(trial: Trial, outcome: Outcome) -> None:
            verdicts = ", ".join(f"{said.clause} {said.verdict}" for said in outcome.said[-3:])
            line = f"{outcome.role:<8}{outcome.name:<10} {outcome.seconds:7.1f} s  {outcome.ended}: {verdicts}"
            progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
            progress.update(task, advance=trial.role in counted)
            progress.refresh()

        tally: Tally = kill(wanted, record, args.workers, told)
    table = Table(box=None, pad_edge=False)
    for name in ("mutant", "kind", "fate", "clause", "seconds", "counterexample"):
        table.add_column(name, no_wrap=name not in ("counterexample",), overflow="fold")
    for mutant in mutants:
        cell = tally.cells[mutant.id]
        fate = "not seen" if wanted.level is not Level.L3 and cell.fate in UNSEEN else str(cell.fate)
        style = "green" if cell.fate is Fate.KILLED else "red"
        words = cell.detail if len(cell.detail) <= 240 else cell.detail[:239] + "…"
        table.add_row(mutant.id, mutant.kind, f"[{style}]{fate}[/]", cell.clause, f"{cell.seconds:.1f}", Text(words))
    console.print(table)
    return _ends(console, tally, monotonic() - started)


UNSEEN = ("survived", "time-out")


def _ends(console: Console, tally: Any, seconds: float) -> int:
    for name, problem in tally.controls.items():
        console.print(f"control {name}: {problem or 'passes'}", markup=False, highlight=False, soft_wrap=True)
    for fate, names in tally.fates():
        console.print(f"{fate}: {' '.join(names)}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{seconds:.0f} s at {tally.wanted.profile}, level {tally.wanted.level}, seed {tally.wanted.seed}")
    console.print(f"killed {tally.killed} of {len(tally.cells)}", highlight=False)
    return 0 if tally.complete else 1
