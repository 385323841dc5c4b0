"""Waivers: known violations that their owner has excused, with reason, link and an expiry date."""

import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .clauses import CLAUSES


class BadWaiver(ValueError):
    """A waiver file that cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """One excused clause; `expires` is an ISO date, the last day on which it counts."""

    clause: str
    reason: str
    link: str
    expires: str

    @property
    def valid(self) -> bool:
        return date.today() <= date.fromisoformat(self.expires)


def read_waivers(path: Path) -> tuple[Waiver, ...]:
    """Read a TOML file of [[waiver]] tables; BadWaiver names the entry and field that is wrong."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("waiver", [])
    except (OSError, ValueError) as error:
        raise BadWaiver(f"--waivers: {path.name} cannot be read ({error})") from None
    waivers = []
    for place, entry in enumerate(entries if isinstance(entries, list) else [None]):
        if not isinstance(entry, dict) or set(entry) != {"clause", "reason", "link", "expires"}:
            raise BadWaiver(f"--waivers: waiver[{place}] must have exactly clause, reason, link and expires")
        values = {name: str(value) for name, value in entry.items()}
        if values["clause"] not in CLAUSES:
            raise BadWaiver(f"--waivers: waiver[{place}].clause: there is no clause {values['clause']!r}")
        try:
            date.fromisoformat(values["expires"])
        except ValueError:
            raise BadWaiver(f"--waivers: waiver[{place}].expires: must be a date like 2027-01-31") from None
        waivers.append(Waiver(**values))
    return tuple(waivers)


def waive(waivers: tuple[Waiver, ...], clause: str) -> Waiver | None:
    """The waiver that still excuses this clause, or None."""
    return next((waiver for waiver in waivers if waiver.clause == clause and waiver.valid), None)
