"""`specqual soak`: hours of traffic with correctness inside; stopped at any time, and resumed."""

import argparse
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from specqual.conformance.verdicts import Status, Verdict
from specqual.contract import Rule


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser("soak", help="serve a decoder for hours, and judge all the while what it says")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", metavar="H", type=float, help="how long to run")
    length.add_argument("--minutes", metavar="M", type=float, help="how long to run (default: 10)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder of --report")
    parser.add_argument("--report", metavar="DIR", type=Path, help="folder of journal and page (default: soak-report)")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="processes that serve epochs (default: 1)")
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--scale", metavar="X", type=float, default=1.0, help="times as many requests an epoch")
    parser.add_argument("--chaos", action="store_true", help="put faults in, kill workers and fill the journal's disk")
    parser.add_argument("--page", action="store_true", help="render the page of the run in --report, and serve nothing")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="serve the epoch of a violation's bundle again")
    parser.add_argument("--decoder", default="optimised", metavar="NAME", help="as in the suite (default: optimised)")
    parser.add_argument("--target", metavar="DIR", help="target checkpoint (default: as in the suite)")
    parser.add_argument("--draft", metavar="DIR", help="drafter checkpoint, or none")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="option of the decoder")
    parser.add_argument("--rule", metavar="RULE", help=f"{', '.join(Rule)} (default: ratio)")
    parser.add_argument("--draft-length", metavar="K", help="drafts of one round (default: the drafter's own)")
    parser.add_argument("--dtype", metavar="DTYPE", help="dtype of the decoder (default: its own)")
    parser.add_argument("--seed", default="0", metavar="N", help="seed of every random choice (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Exit status of the run so far, as the suite has it; 2 also where a hazard never occurred."""
    try:
        return followed(args)
    except sqlite3.Error as error:
        print("specqual: error: the journal:", error, file=sys.stderr)
        return Status.ERROR


def followed(args: argparse.Namespace) -> int:
    """Do what a command line asks for."""
    from specqual.soak.journal import NAME, BadJournal, Journal
    from specqual.soak.mayhem import Cramped, Mayhem
    from specqual.soak.page import Press, meant
    from specqual.soak.run import Soak, stopping
    from specqual.soak.view import view

    if args.replay is not None:
        return replay(args.replay)
    if args.page:
        return looked_at(args.report or Path("soak-report"))
    if args.workers < 1:
        raise ValueError(f"--workers: must be at least 1, got {args.workers}")
    minutes = args.hours * 60 if args.hours is not None else 10.0 if args.minutes is None else args.minutes
    if not 0 < minutes < float("inf"):
        given = ("--minutes", minutes) if args.hours is None else ("--hours", args.hours)
        raise ValueError("{}: must be more than none, got {}".format(*given))
    if not 0 < args.scale <= 100:
        raise ValueError(f"--scale: must be more than none and at most 100, got {args.scale}")
    folder = args.report or Path("soak-report")
    file = folder / NAME
    if args.resume and not file.is_file():
        raise BadJournal(f"--resume: there is no journal in {folder}")
    if not args.resume and file.exists():
        raise BadJournal(f"--report: {folder} holds a journal already; --resume goes on with it")
    about = asked(args)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--report: {os.fspath(folder)!r} is no folder that can be made ({error.strerror})") from None
    journal, console = (Cramped if args.chaos else Journal).open(file), Console()
    identity = about.json() | about.made_with()
    journal.agree(identity)
    press, mayhem = Press(journal, folder), Mayhem(about.seed) if args.chaos else None
    told: str | None = None
    with view(journal, console) as shown:

        def beat(soak: Soak) -> None:
            nonlocal told
            shown.tick()
            press.tick()
            if soak.trouble not in (None, told):
                console.print(f"waits for the journal: {soak.trouble}", markup=False, highlight=False, soft_wrap=True)
            told = soak.trouble
            if mayhem is not None:
                mayhem.tick(soak)

        soak = Soak(about, journal, args.workers, minutes * 60, beat, identity)
        with stopping(soak):
            how = soak.run()
    found = press.print(running=False)
    say(console, found)
    if press.trouble is not None:
        console.print(f"page: not written: {press.trouble}", markup=False, highlight=False, soft_wrap=True)
    status = found.status if soak.trouble is None or found.status is Status.VIOLATED else Status.ERROR
    meaning = meant(found.status) if soak.trouble is None else "what is recorded stays; make room and --resume"
    console.print(f"{how}; exit status {int(status)}: {meaning}", markup=False, highlight=False, soft_wrap=True)
    journal.close()
    return status


def say(console: Console, found: Any) -> None:
    """Print each decision of a run."""
    for name, decision in found.decisions.items():
        console.print(f"{name}: {decision}", markup=False, highlight=False, soft_wrap=True)


def looked_at(folder: Path) -> int:
    """Render the page of a run, be it over or not, and print its verdict so far; its exit status."""
    from specqual.soak.journal import NAME, Journal
    from specqual.soak.night import judged
    from specqual.soak.page import page, write
    from specqual.soak.series import running

    if not (folder / NAME).is_file():
        raise ValueError(f"--page: there is no journal in {folder}")
    journal = Journal.read(folder / NAME)
    found = judged(journal)
    write(page(journal, found, running(journal)), folder)
    say(Console(), found)
    return found.status


def asked(args: argparse.Namespace) -> Any:
    """The run that a command line asks for; BadOption names what cannot be followed."""
    from specqual.conformance.options import BadOption, read_options
    from specqual.soak.about import About
    from specqual.soak.chaos import DRILLS, PREFIX
    from specqual.soak.scenarios import SCENARIOS

    names = ("decoder", "target", "draft", "option", "rule", "draft_length", "dtype", "seed")
    given = {f"specqual_{name}": getattr(args, name) for name in names}
    usual = {"profile": "quick", "clause": [], "without": [], "waivers": None, "baseline": None, "report": None}
    given |= {f"specqual_{name}": value for name, value in (*usual.items(), ("estimate", False))}
    wanted = read_options(argparse.Namespace(**given)).run
    for name in args.scenario:
        if name not in SCENARIOS:
            raise BadOption(f"--scenario: there is no {name!r}; there are {', '.join(SCENARIOS)}")
    scenarios = tuple(name for name in SCENARIOS if not args.scenario or name in args.scenario)
    drills = tuple(PREFIX + name for name in DRILLS) if args.chaos else ()
    return About(wanted.decoder, wanted.setup, wanted.seed, (*drills, *scenarios), args.scale)


def replay(file: Path) -> int:
    """Serve the epoch of a bundle again: alone and, if nothing is amiss then, behind those that had gone before it."""
    import torch

    from specqual.soak.about import About
    from specqual.soak.chaos import PREFIX
    from specqual.soak.scenarios import SCENARIOS
    from specqual.soak.worker import World

    try:
        bundle = json.loads(file.read_text(encoding="utf-8"))
        about, last = About.of(bundle), (str(bundle["scenario"]), int(bundle["epoch"]))
        if last[0] not in SCENARIOS and not last[0].startswith(PREFIX):
            raise LookupError(f"there is no scenario {last[0]!r}")
        behind, sought = about.behind(bundle), bundle.get("oracle")
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"--replay: {os.fspath(file)!r} is no bundle ({error})") from None
    torch.set_num_threads(1)  # as its worker had it
    tried = [("alone", [last])] + ([(f"behind {len(behind):,} others", [*behind, last])] if behind else [])
    for how, tasks in tried:
        print(f"{last[0]}, epoch {last[1]}, {how}: ", end="", flush=True)
        world = World(about)
        *_, played = (world.play(task) for task in tasks)
        world.close()
        print(played.epoch.verdict)
        seen = played.epoch.violations
        for one in seen:
            print(f"  {one.oracle}: {one.detail}")
        if seen:
            same = sought in (None, *(one.oracle for one in seen))
            status = Status.VIOLATED if played.epoch.verdict is Verdict.VIOLATED else Status.ERROR
            told = "reproduced" if same else f"something else went wrong than {sought} had found"
            print(f"{told}; exit status {int(status)}")
            return status
    print(f"not reproduced, {' nor '.join(how for how, _ in tried)}; exit status {int(Status.OPEN)}")
    return Status.OPEN
