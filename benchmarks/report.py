"""From pytest-benchmark's JSON to one page that needs no network, and to tables for docs/results/throughput.md.

`python -m benchmarks.report RESULTS.json PAGE.html` writes the page and prints the tables in Markdown.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .html import bars, rendered, table
from .results import Cell, Cells, Spread, busy, gather, goals

COLUMNS = (
    "arm",
    "tokens/s",
    "range",
    "× target only",
    "tokens per round",
    "rows per round",
    "KV kB per round",
    "state kB per round",
    "target forwards",
    "peak MB",
    "same output",
)
GOAL_COLUMNS = ("model", "ratio of tokens per second", "median and range", "in processor time", "verdict")
QUIET = 0.05  # above this share of waiting, the clock says more about the neighbours than about the arms


def header(content: Mapping[str, Any]) -> dict[str, str]:
    """What was measured where."""
    machine, told, commit = content["machine_info"], content["machine_info"]["throughput"], content["commit_info"]
    settings = told["settings"]
    cpu = machine["cpu"].get("brand_raw") or machine["machine"]
    return {
        "processor": f"{cpu}, {machine['cpu'].get('count', '?')} cores",
        "threads of each arm": str(settings["cores"]),
        "dtype": settings["arithmetic"],
        "work": f"prompts of {settings['prompt']} tokens, {settings['tokens']} new tokens, {settings['trials']} trials",
        "commit": commit["id"] + (" with changes" if commit["dirty"] else ""),
        "versions": ", ".join(f"{name} {number}" for name, number in told["versions"].items())
        + f", Python {machine['python_version']}",
        "measured": content["datetime"],
        "waiting": f"{busy(content):.1%} of the time the arms did not get the processor (median){noise(content)}",
    }


def noise(content: Mapping[str, Any]) -> str:
    return "" if busy(content) <= QUIET else ": the machine was busy, so no ratio by the clock is to be trusted"


def goal_lines(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What was asked for, as the texts of GOAL_COLUMNS."""
    doubt = " (busy machine)" if noise(content) else ""
    found = goals(gather(content))
    return [
        (f.model, f.goal.title, spread(f.ratio), spread(f.cpu_ratio), f.verdict + doubt * (f.ratio is not None))
        for f in found
    ]


def groups(cells: Cells) -> Iterator[tuple[str, int, list[Cell]]]:
    """Cells that stand in one table and one picture: those of a model and batch."""
    for model, batch in dict.fromkeys((model, batch) for model, batch, _ in cells):
        yield model, batch, [cell for key, cell in cells.items() if key[:2] == (model, batch)]


def spread(ratio: Spread | None) -> str:
    return "" if ratio is None else f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def line(cell: Cell, plain: Cell | None) -> tuple[str, ...]:
    """A cell as the texts of its table's COLUMNS; `plain` is the target alone in the same batch."""
    info, speed = cell.info, cell.speed
    peak = info["peak_bytes"]
    return (
        cell.label,
        f"{speed.median:.1f}",
        f"{speed.low:.1f} to {speed.high:.1f}",
        "" if plain is None else spread(cell.over(plain)),
        f"{info['acceptance']:.2f}",
        f"{info['rows']:.1f}",
        f"{info['kv_bytes'] / 1e3:.0f}",
        f"{info['state_bytes'] / 1e3:.0f}",
        str(info["forwards"]),
        "" if peak is None else f"{peak / 1e6:.0f} (+{(peak - info['loaded_bytes']) / 1e6:.0f})",
        "" if plain is None else f"{cell.same(plain)} of {cell.batch}",
    )


def lines(group: list[Cell]) -> list[tuple[str, ...]]:
    plain = next((cell for cell in group if cell.arm == "target-only"), None)
    return [line(cell, plain) for cell in group]


def pictured(group: list[Cell]) -> list[dict[str, Any]]:
    return bars([(cell.label, cell.speed, f"{cell.speed.median:.1f}") for cell in group])


def page(content: Mapping[str, Any]) -> str:
    cells = gather(content)
    return rendered(
        "page.html.j2",
        header=header(content),
        goals=goal_lines(content),
        goal_columns=GOAL_COLUMNS,
        groups=[(model, batch, lines(group), pictured(group)) for model, batch, group in groups(cells)],
        columns=COLUMNS,
    )


def markdown(content: Mapping[str, Any]) -> str:
    cells = gather(content)
    parts = ["\n".join(f"- {name}: {value}" for name, value in header(content).items())]
    parts.append(table(GOAL_COLUMNS, goal_lines(content)))
    parts += [f"### {model}, batch {batch}\n\n" + table(COLUMNS, lines(group)) for model, batch, group in groups(cells)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    content = json.loads(arguments.results.read_text())
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(page(content), encoding="utf-8")
    print(markdown(content))


if __name__ == "__main__":
    main()
