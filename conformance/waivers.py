"""Waivers: known violations that their owner has excused, with reason, link and an expiry date."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from .clauses import CLAUSES
from .verdicts import Verdict


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
        for name in ("reason", "link"):
            if not values[name].strip():
                raise BadWaiver(f"--waivers: waiver[{place}].{name}: must say something")
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


def warnings(waivers: Iterable[Waiver], results: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the waivers in the light of a run: expired where they were needed, or needed no longer.

    `results` are lines of a report. A waiver of a clause that was not decided is nobody's business.
    """
    verdicts = {line["clause"]: Verdict(line["verdict"]) for line in results}
    said = []
    for waiver in waivers:
        verdict = verdicts.get(waiver.clause)
        if verdict is Verdict.VIOLATED and not waiver.valid:
            said.append(f"the waiver of {waiver.clause} expired on {waiver.expires}, so its violation counts")
        elif verdict in (Verdict.EXACT, Verdict.HOLDS, Verdict.TIE_EXPLAINED):
            said.append(f"the waiver of {waiver.clause} excuses nothing: {waiver.clause} is {verdict}; take it out")
    return said
