"""Everything that needs a GPU, as parts of one command, which needs neither an installation nor a network.

    python -m tests.device [PART …] --out DIR [--only TEXT] [--minutes PART=M] [--commit ID]

A part is a few jobs in processes of their own, within its minutes. One that fails, or whose time is over, stops nothing
else. DIR gets results.json (how each job ended) and log.txt (their output), written anew as jobs end, and
details-PART.tar.gz (the files of its jobs: reports, measurements) when a part ends. The last lines say
one thing about each part.

The parts, in the order in which they are worth running, all but the last planned as three calls of at most ten minutes
on one GPU:

    1.  tests      3  the tests of kernels and of the decoder on them, on the device instead of in the interpreter
        kernels    6  every kernel against its definition, its bits among other rows, its speed
    2.  profile    5  conformance, profile `device`: dense and hybrid, bf16 and NVFP4 with FP8 caches, graphs on
                      and off; two minutes each, four at a time
        bitwise    4  greedy with speculation = without, over 120,000 tokens in eight campaigns side by side
    3.  bench      7  the full geometry: memory, steps, rounds, breakdown
        sanitize   2  compute-sanitizer, memcheck and racecheck, on kernels and on a small decode

        soak      14  `specqual soak` for four minutes less, in four processes; it measures nothing, so it may run
                      beside all but bench. So short it is no judge of memory, which alone makes its status 2

`--device interpreter` or `cpu` rehearses profile and bitwise where there is no GPU (`--device cpu --only hybrid-bf16`),
and soak (`--device cpu --minutes soak=2`).
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from .jobs import Ended, run
from .parts import PARTS, PYTHON, Part, Session, chosen
from .source import environment, laid_out

NEEDED = (
    *("torch", "numpy", "safetensors", "tokenizers", "pytest", "hypothesis", "jinja2", "rich"),  # by the package
    *("xdist", "scipy", "transformers", "triton"),  # by its jobs
)


def about() -> dict[str, str]:
    """The machine, as its own tools tell it."""
    script = "import sys, torch; print(sys.version.split()[0], torch.__version__, torch.cuda.is_available())"
    asked = {"python, torch, cuda": [PYTHON, "-c", script], "gpu": ["nvidia-smi", "-L"]}
    found = {}
    for name, command in asked.items():
        try:
            found[name] = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            found[name] = f"not to be had: {error}"
    return found


def run_part(
    name: str, part: Part, session: Session, variables: Mapping[str, str], hear: Callable[[Ended], None]
) -> None:
    """All jobs of a part; `hear` is told of each one that has ended."""
    session = replace(session, minutes=part.minutes)
    end, logs = monotonic() + 60 * part.minutes, session.folder("logs") / name
    for jobs, width in ((part.needs(session), 2), (chosen(session, part.jobs(session)), part.width)):
        run(jobs, width=width, end=end, logs=logs, variables=variables, hear=hear)


def line(name: str, found: Sequence[Ended]) -> str:
    """What is said about a part."""
    bad = [one.name for one in found if not one.fine]
    return f"{name}: {len(found) - len(bad)} of {len(found)} jobs fine" + (f"; not {', '.join(bad)}" if bad else "")


def keep(out: Path, session: Session, told: Mapping[str, object]) -> None:
    """Write what is known so far about every job, and all output."""
    (out / "results.json").write_text(json.dumps(told, indent=1) + "\n")
    logs = sorted((session.scratch / "logs").rglob("*.txt"), key=lambda path: path.stat().st_mtime)
    text = (f"==== {path.parent.name}: {path.stem}\n{path.read_text(errors='replace')}\n" for path in logs)
    (out / "log.txt").write_text("".join(text))


def pack(out: Path, session: Session, name: str) -> None:
    """Write the files of a part's jobs, none of which is still at work, without pages, which can be made again."""
    if (folder := session.scratch / name).is_dir():
        with tarfile.open(out / f"details-{name}.tar.gz", "w:gz") as archive:
            archive.add(folder, name, filter=lambda file: None if file.name.endswith(".html") else file)


def lacking(device: str) -> list[str]:
    """The modules that jobs need and this Python does not have."""
    return [name for name in NEEDED if not (name == "triton" and device == "cpu") and find_spec(name) is None]


def limits(entries: Sequence[str]) -> dict[str, Part]:
    """The parts, with the minutes that were asked for."""
    found = dict(PARTS)
    for entry in entries:
        name, _, minutes = entry.partition("=")
        if name not in PARTS or not minutes.replace(".", "", 1).isdecimal():
            raise ValueError(f"--minutes: must look like PART=M with one of {', '.join(PARTS)}, got {entry!r}")
        found[name] = replace(PARTS[name], minutes=float(minutes))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 if a job did not end as it should, 2 if a module is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.device", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the three files go")
    parser.add_argument("--only", default="", metavar="TEXT", help="jobs with this text in their name")
    parser.add_argument("--minutes", action="append", default=[], metavar="PART=M", help="other limits; repeatable")
    parser.add_argument("--device", choices=("cuda", "interpreter", "cpu"), default="cuda", help="(default: cuda)")
    parser.add_argument("--commit", default="", metavar="ID", help="what is run, where no git can tell")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"PART: there is no {unknown[0]!r}; there are {', '.join(PARTS)}")
    try:
        parts = limits(given.minutes)
    except ValueError as error:
        parser.error(str(error))
    if missing := lacking(given.device):
        print(f"not installed: {', '.join(missing)}", file=sys.stderr, flush=True)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), given.device, given.only, given.commit)
        variables = environment(laid_out(session.scratch / "site"))
        ended: dict[str, list[Ended]] = {name: [] for name in given.parts or PARTS}
        told = {"machine": about(), "commit": given.commit, "device": given.device}
        for name, found in ended.items():
            print(f"{name}, at most {parts[name].minutes:g} minutes", flush=True)

            def hear(one: Ended, found: list[Ended] = found) -> None:
                print(f"  {one}", flush=True)
                found.append(one)
                so_far = {part: [asdict(one) for one in ones] for part, ones in ended.items()}
                keep(given.out, session, told | {"parts": so_far})

            run_part(name, parts[name], session, variables, hear)
            pack(given.out, session, name)
    for name, found in ended.items():
        print(line(name, found))
    return int(any(not one.fine for found in ended.values() for one in found))


if __name__ == "__main__":
    sys.exit(main())
