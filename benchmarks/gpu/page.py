"""From the files of a run's parts to one page that needs no network, and to tables in Markdown."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..html import bars, rendered, table
from ..results import Spread
from .clock import trials_of
from .derived import GIB, Results, Speed, goals, speeds
from .groups import grouped

GOAL_COLUMNS = ("asked for", "bound", "median and range", "verdict")
SPEED_COLUMNS = (
    "arm",
    "batch",
    "context",
    "step, ms",
    "of copy bandwidth",
    "round, ms",
    "of copy bandwidth",
    "round ÷ step = break-even acceptance length",
)
ACCEPTANCES = tuple(range(1, 9))
SMALL_COLUMNS = ("target", "batch", "arm", "tokens/s", "tokens per round", "× target only", "same output")
SIZE = 260, 150  # of a picture of tokens per second, pixels


def read(folder: Path) -> tuple[Results, dict[str, str], dict[str, str]]:
    """What the parts found, where and how, and why some failed."""
    contents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    contents = [content for content in contents if "part" in content]
    if not contents:
        raise SystemExit(f"page: {folder} holds no results of a part")
    found = {content["part"]: content["found"] for content in contents if content.get("found") is not None}
    failed = {content["part"]: content["error"] for content in contents if "error" in content}
    told: dict[str, str] = {}
    for content in contents:
        for name, value in content["about"].items():
            text = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else str(value)
            told[name] = text if told.get(name, text) == text else f"{told[name]}; {text}"
    return found, told, failed


def told(spread: Spread | None, factor: float = 1.0, digits: int = 3) -> str:
    """Median and range."""
    if spread is None:
        return ""
    low, middle, high = (f"{value * factor:.{digits}g}" for value in (spread.low, spread.median, spread.high))
    return f"{middle} [{low}, {high}]"


def goal_lines(results: Results) -> list[tuple[str, ...]]:
    return [
        (g.title, f"{'at least' if g.least else 'at most'} {g.bound:g}{g.unit}", told(g.found), g.verdict)
        for g in goals(results)
    ]


def speed_lines(results: Results) -> list[tuple[str, ...]]:
    """Every cell: with the drafter in NVFP4, and as stored."""
    return [
        (
            speed.arm + (", drafter as stored" if part == "stored" else ""),
            str(speed.batch),
            f"{speed.context:,}",
            told(speed.step, 1e3),
            told(speed.step_fraction),
            told(speed.round, 1e3),
            told(speed.round_fraction),
            told(speed.ratio),
        )
        for part in ("speed", "stored")
        if part in results
        for speed in speeds(results[part])
    ]


def yield_lines(results: Results) -> list[tuple[str, ...]]:
    """Tokens per second of the whole batch by acceptance length, beside the target alone."""
    found = list(speeds(results["speed"])) if "speed" in results else []
    return [
        (
            s.arm,
            str(s.batch),
            f"{s.context:,}",
            *(f"{speed:.0f}" for speed in (s.tokens_without, *s.tokens(ACCEPTANCES))),
        )
        for s in found
    ]


def attention_lines(results: Results) -> list[tuple[str, ...]]:
    """Microseconds of one layer by back end."""
    return [
        (
            f"{cell['name']}, {name}",
            str(cell["batch"]),
            f"{cell['context']:,}",
            told(spread_of(seconds), 1e6 / cell["layers"]),
        )
        for cell in results.get("attention", ())
        for name, seconds in cell["seconds"].items()
    ]


def memory_lines(results: Results) -> list[tuple[str, ...]]:
    if "memory" not in results:
        return []
    found = results["memory"]
    lines = [
        (
            name,
            f"{found['planned'][name] / GIB:.3f}",
            f"{found['held'][name] / GIB:.3f}" if name in found["held"] else "",
        )
        for name in found["planned"]
    ]
    return [
        *lines,
        ("sum", f"{sum(found['planned'].values()) / GIB:.3f}", f"{sum(found['held'].values()) / GIB:.3f}"),
        ("peak that was allocated while loading", "", f"{found['load_peak'] / GIB:.3f}"),
        ("peak that was allocated", "", f"{found['peak_allocated'] / GIB:.3f}"),
        ("peak that the allocator held", "", f"{found['peak_reserved'] / GIB:.3f}"),
        ("in use on the device", "", f"{found['device_used'] / GIB:.3f}"),
    ]


def pictures(results: Results) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Titles and bars: the parts of a round, and the kernels of each part."""
    for cell in results.get("breakdown", ()):
        for arm, found in cell["arms"].items():
            where = f"{arm}, batch {cell['batch']}, context {cell['context']:,}"
            parts = [(name, spread_of(seconds)) for name, seconds in (found["parts"] | found["rounds"]).items()]
            yield f"Parts of a round, ms: {where}", bars([(n, s, told(s, 1e3)) for n, s in parts])
            for part, kernels in found["kernels"].items():
                sums = sorted(grouped(kernels).items(), key=lambda pair: -pair[1])
                count = sum(kernel["launches"] for kernel in kernels.values())
                drawn = bars([(n, Spread(s, s, s), f"{s * 1e3:.3f}") for n, s in sums])
                yield f"Kernels of {part}, ms in {count:.0f} launches: {where}", drawn


def spread_of(seconds: Sequence[float]) -> Spread:
    return Spread.of(trials_of(list(seconds)))


def small_lines(results: Results) -> list[tuple[str, ...]]:
    lines = []
    for cell in results.get("small", ()):
        tokens, plain = cell["batch"] * cell["tokens"], trials_of(cell["seconds"]["target only"])
        for arm, seconds in cell["seconds"].items():
            runs = trials_of(seconds)
            speed = Spread.of([tokens / one for one in runs])
            over = Spread.of([a / b for a, b in zip(plain, runs, strict=True)])
            acceptance = f"{cell['traffic'][arm]['acceptance']:.2f}"
            same = f"{cell['same output']} of {cell['batch']}"
            lines.append((cell["name"], str(cell["batch"]), arm, told(speed, digits=4), acceptance, told(over), same))
    return lines


def peer_lines(results: Results) -> list[tuple[str, ...]]:
    if "transformers" not in results:
        return []
    found = results["transformers"]
    versions = ", ".join(f"{name} {number or 'not there'}" for name, number in found["versions"].items())
    yes = {True: "yes", False: "no"}
    return [
        ("one token, ms", told(spread_of(found["seconds"]), 1e3)),
        ("dtype", f"{found['dtype']}, from the same synthetic weights"),
        ("context", f"{found['context']:,}"),
        ("flash-linear-attention, causal-conv1d", f"{yes[found['fla']]}, {yes[found['causal_conv1d']]}"),
        ("versions", versions),
    ]


def curves(results: Results) -> list[dict[str, Any]]:
    """Tokens per second over acceptance length: of rounds a rising line, of the target alone a level one."""
    found = list(speeds(results["speed"])) if "speed" in results else []
    return [curve(speed) for speed in found]


def curve(speed: Speed) -> dict[str, Any]:
    width, height = SIZE
    top = max(speed.tokens_per_second(ACCEPTANCES[-1]), speed.tokens_without)

    def at(acceptance: float, tokens: float) -> str:
        return f"{width * (acceptance - 1) / (ACCEPTANCES[-1] - 1):.1f},{height * (1 - tokens / top):.1f}"

    return {
        "title": f"{speed.arm}, batch {speed.batch}, context {speed.context:,}",
        "rising": " ".join(at(length, speed.tokens_per_second(length)) for length in ACCEPTANCES),
        "level": f"{height * (1 - speed.tokens_without / top):.1f}",
        "top": f"{top:.0f}",
    }


def tables(results: Results) -> list[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    """Title, columns and lines; those without a line are left out."""
    yields = ("arm", "batch", "context", "target alone", *(f"at {length}" for length in ACCEPTANCES))
    found = [
        ("Target steps and rounds", SPEED_COLUMNS, speed_lines(results)),
        ("Tokens per second by acceptance length", yields, yield_lines(results)),
        ("Attention of one layer by back end", ("attention of", "batch", "context", "µs"), attention_lines(results)),
        ("Memory, GiB", ("what", "planned", "found"), memory_lines(results)),
        ("Transformers on the same weights, batch 1", ("what", "found"), peer_lines(results)),
        ("Trained small fixtures", SMALL_COLUMNS, small_lines(results)),
    ]
    return [(title, columns, lines) for title, columns, lines in found if lines]


def write(folder: Path) -> str:
    """Write performance.html beside the results; returns the tables in Markdown."""
    results, header, failed = read(folder)
    header = header | {f"part {name} failed": why for name, why in failed.items()}
    html = rendered(
        "gpu/page.html.j2",
        header=header,
        goal_columns=GOAL_COLUMNS,
        goals=goal_lines(results),
        tables=tables(results),
        pictures=list(pictures(results)),
        curves=curves(results),
        size=SIZE,
    )
    (folder / "performance.html").write_text(html, encoding="utf-8")
    parts = ["\n".join(f"- {name}: {value}" for name, value in header.items())]
    parts.append(table(GOAL_COLUMNS, goal_lines(results)))
    parts += [f"### {title}\n\n{table(columns, lines)}" for title, columns, lines in tables(results)]
    return "\n\n".join(parts)
