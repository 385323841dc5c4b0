"""What pages of results have in common: one file that needs no network, bars with a range, tables in Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from .results import Spread

WIDTH = 420  # of the longest bar, pixels


def rendered(template: str, **content: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**content)


def bars(found: Sequence[tuple[str, Spread, str]]) -> list[dict[str, Any]]:
    """Labels, numbers and texts as bars: lengths in pixels, in a picture as wide as the largest number."""
    scale = WIDTH / max((spread.high for _, spread, _ in found), default=1.0)
    return [
        {
            "label": label,
            "value": text,
            "length": spread.median * scale,
            "low": spread.low * scale,
            "high": spread.high * scale,
        }
        for label, spread, text in found
    ]


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (names, ("---",) * len(names), *rows))
