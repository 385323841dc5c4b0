"""Reports of the shards of one run as the report of that run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .audit import checked
from .clauses import CLAUSES, ordered, status_of
from .report import AGAIN, ROOT, BadReport, Loaded, canonical, footer, render, sealed
from .statistics.budget import overdrawn
from .verdicts import Profile

CHAINED = {"hash"}
SHARED = {"clauses", "date"}  # in which shards may differ: which clauses each has, and when it ran
SAID = ("verdict", "detail", "delta")  # in which two shards that decided one clause must agree


class Unlike(ValueError):
    """Reports that are not shards of one run; names the field of the header, or the clause."""


def merge(directories: Sequence[Path], out: Path) -> list[dict[str, Any]]:
    """Write the report, page and JUnit file of the whole run to `out` and return the report's lines.

    BadReport for a shard that is truncated or altered or whose verdicts do not follow from their evidence; Unlike where
    two headers differ in anything but clauses and date, or where a clause that was decided twice came out differently.
    """
    shards = {directory: shard(directory) for directory in directories}
    if out.resolve() in {directory.resolve() for directory in directories}:
        raise Unlike(f"--out: {out} is one of the reports to merge")
    (first, begun), *others = shards.items()
    for directory, other in others:
        same(begun.header, other.header, first, directory)
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    again: list[dict[str, Any]] = []
    for directory, loaded in shards.items():
        again += loaded.footer["again"]
        for line in loaded.verdicts:
            before, known = found.setdefault(line["clause"], (directory, line))
            if known is not line:
                again.append({name: line[name] for name in AGAIN})
            for name in SAID:
                if known[name] != line[name]:
                    told = f"{known[name]!r} in {before}, {line[name]!r} in {directory}"
                    raise Unlike(f"{line['clause']}: {name} is {told}")
    verdicts = [found[identifier][1] for identifier in CLAUSES if identifier in found]
    profile = Profile(begun.header["profile"])
    selected = ordered(name for loaded in shards.values() for name in loaded.header["clauses"])
    first_day = min(str(loaded.header["date"]) for loaded in shards.values())
    header = begun.header | {"clauses": list(selected), "date": first_day}
    last = footer(verdicts, int(status_of([*verdicts, *again], profile)), again)
    for problem in overdrawn(last["budget"]["spent"]):
        raise Unlike(problem)
    lines = chained([header, *verdicts, last])
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.jsonl").write_text("".join(canonical(line) + "\n" for line in lines), encoding="utf-8")
    render(out, lines)
    return lines


def shard(directory: Path) -> Loaded:
    """A report in which everything follows; BadReport names the folder and what does not."""
    try:
        return checked(directory)
    except BadReport as error:
        raise BadReport(f"{directory}: {error}") from None


def same(one: dict[str, Any], other: dict[str, Any], first: Path, second: Path) -> None:
    """Raise Unlike, naming the field, unless two headers say the same."""
    for field in sorted((one.keys() | other.keys()) - CHAINED - SHARED):
        mine, its = one.get(field), other.get(field)
        while isinstance(mine, dict) and isinstance(its, dict) and mine != its:  # claims and versions: which of them
            inner = next(name for name in sorted(mine.keys() | its.keys()) if mine.get(name) != its.get(name))
            field, mine, its = f"{field}.{inner}", mine.get(inner), its.get(inner)
        if mine != its:
            raise Unlike(f"{field}: is {mine!r} in {first}, {its!r} in {second}; shards of one run have equal headers")


def chained(contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines under a hash chain of their own."""
    lines, before = list[dict[str, Any]](), ROOT
    for content in contents:
        line = sealed({name: value for name, value in content.items() if name not in CHAINED}, before)
        lines.append(line)
        before = line["hash"]
    return lines
