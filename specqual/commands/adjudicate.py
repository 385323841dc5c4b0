"""`specqual adjudicate`: judge recorded greedy runs of any engine, without an adapter for it."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text as Styled

from specqual.conformance.adjudicate import Adjudication, Arm, Progress, adjudicate, to_json
from specqual.conformance.lab import MEASURED
from specqual.conformance.recorded import DTYPES, read_log
from specqual.conformance.verdicts import Verdict
from specqual.reference.text import Text, load_text

from .verify import printable

STYLES = {Verdict.EXACT: "green", Verdict.TIE_EXPLAINED: "green", Verdict.VIOLATED: "red"}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser(
        "adjudicate",
        help="judge recorded greedy runs of any engine",
        description='Judge greedy logs: per line one request, {"prompt_ids": [...], "output_ids": [...]}.',
    )
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint of the target")
    parser.add_argument("--on", type=Path, required=True, metavar="A.jsonl", help="log with speculation on")
    parser.add_argument("--off", type=Path, metavar="B.jsonl", help="log of the same engine with speculation off")
    parser.add_argument("--dtype", choices=DTYPES, help="what the engine computed in (default: what the lines say)")
    parser.add_argument(
        "--sequences", type=int, default=MEASURED, metavar="N", help="to measure rounding on (%(default)s)"
    )
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="write verdicts and their evidence")


def run(args: argparse.Namespace) -> int:
    """Judge and print; the exit status is that of the verdicts."""
    if args.sequences < 2:
        raise ValueError(f"--sequences: must be at least 2, got {args.sequences}")
    if args.report is not None and not args.report.parent.is_dir():
        raise ValueError(f"--report: there is no folder {args.report.parent}")
    on, off = read_log(args.on), None if args.off is None else read_log(args.off)
    with bar() as progress:
        found = adjudicate(args.target, on, off, dtype=args.dtype, measured=args.sequences, progress=progress)
    show(found, load_text(args.target))
    if args.report is not None:
        content = to_json(found)
        args.report.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
        print(f"report: {args.report}, sealed {content['seal']}")
    return int(found.status)


@contextmanager
def bar() -> Iterator[Progress]:
    """A bar for each thing that takes its time, on a terminal's stderr."""
    console, tasks = Console(stderr=True), {}
    with Bar(console=console, transient=True, disable=not console.is_terminal) as shown:

        def progress(what: str, done: int, steps: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=steps)
            shown.update(tasks[what], completed=done)

        yield progress


def show(found: Adjudication, text: Text | None) -> None:
    """One row per arm, what decided each, and where the arms part."""
    console = Console()
    table = Table("arm", "requests", "tokens", "not the best", "worst regret", "verdict")
    for name, arm in found.arms.items():
        table.add_row(name, *row(arm), Styled(arm.decision.verdict, style=STYLES.get(arm.decision.verdict, "yellow")))
    console.print(table)
    lines = [f"rounding: {found.envelope}, measured on {found.sequences} sequences; judged in {found.judged_in}"]
    for name, arm in found.arms.items():
        said = ", ".join(f"{key} {value}" for key, value in arm.log.common.items())
        lines.append(f"{name}: {arm.log.path.name}" + (f" ({said})" if said else ""))
        lines.append(f"{name} {arm.decision}{place(arm, text)}")
    compared = found.comparison
    if compared is not None:
        lines.append(f"on against off {compared.decision}")
        lines.append(f"{len(compared.flips)} of {compared.pairs} requests part")
        for flip in compared.flips:
            tokens = [word(token, text) for token in flip.tokens]
            regrets = ", ".join("none" if regret is None else f"{regret:.3g}" for regret in flip.regrets)
            kind = "an end in one arm only" if None in flip.tokens else "a tie" if flip.tie else "not a tie"
            lines.append(
                f"  line {flip.on_line} against {flip.off_line}, output_ids[{flip.place}]: {tokens[0]} against "
                f"{tokens[1]}, regrets {regrets}, margin {flip.margin:.3g}: {kind}"
            )
    for line in lines:
        console.print(Styled(printable(line)), soft_wrap=True)


def row(arm: Arm) -> list[str]:
    cases = arm.evidence.cases
    wrong = [
        None if own is None else best - own
        for case in cases
        for token, first, own, best in zip(case["output"], case["argmax"], case["logprob"], case["best"], strict=True)
        if token != first
    ]
    worst = "no token" if None in wrong else f"{max((regret for regret in wrong if regret is not None), default=0):.3g}"
    tokens = sum(len(case["output"]) for case in cases)
    return [str(len(cases)), str(tokens), str(len(wrong)), worst]


def place(arm: Arm, text: Text | None) -> str:
    """Where a violation is in the log, and what the tokens there say."""
    decision = arm.decision
    if decision.case is None or decision.place is None:
        return ""
    case = arm.evidence.cases[decision.case]
    said, best = (word(case[name][decision.place], text) for name in ("output", "argmax"))
    return f" ({case['label']}, output_ids[{decision.place}]: {said} in the place of {best})"


def word(token: int | None, text: Text | None) -> str:
    """A token as id and text."""
    if token is None:
        return "nothing"
    return str(token) if text is None or not 0 <= token < 2**31 else f"{token} {text.decode([token])!r}"
