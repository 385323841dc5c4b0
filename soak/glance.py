"""A run at one glance: the numbers that the live view, the heartbeat and the head of the page share."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .journal import Journal
from .series import segments

EVIDENCE = "log10 E"  # a gauge of the process that writes
RECENT = 60.0  # seconds in which a worker's gauges count as its present ones


@dataclass(frozen=True, slots=True)
class Glance:
    """What a journal holds at one moment. `now` are gauges of the workers that were heard of lately: sums, and for
    regret the largest; `log10_e` is that of all laws together, when it was last reckoned."""

    seconds: float  # that the run was on
    epochs: int
    verdicts: Mapping[str, int]
    violations: int  # that were found
    kept: int  # of them
    oracle_share: float | None
    totals: Mapping[str, int]
    now: Mapping[str, float]
    log10_e: float | None
    workers: int


def glance(journal: Journal) -> Glance:
    """Look at a journal, be it finished or being written."""
    ask = journal.connection.execute
    verdicts = Counter(dict(ask("SELECT verdict, count(*) FROM epochs GROUP BY verdict")))
    worked, judged = ask("SELECT total(seconds), total(oracle_seconds) FROM epochs").fetchone()
    told = ask("SELECT value FROM gauges WHERE name = ? ORDER BY time DESC LIMIT 1", (EVIDENCE,)).fetchone()
    (heard,) = ask("SELECT max(time) FROM gauges").fetchone()
    recent = "SELECT worker, name, value, max(time) FROM gauges WHERE time > ? AND worker >= 0 GROUP BY worker, name"
    now, workers = dict[str, float](), set[int]()
    for worker, name, value, _ in ask(recent, ((heard or 0.0) - RECENT,)):
        workers.add(worker)
        now[name] = max(now.get(name, value), value) if name == "worst regret" else now.get(name, 0.0) + value
    return Glance(
        segments(journal).seconds,
        verdicts.total(),
        dict(sorted(verdicts.items())),
        sum(journal.found().values()),
        journal.kept(),
        judged / worked if worked else None,
        journal.counts(),
        now,
        told[0] if told else None,
        len(workers),
    )


def clock(seconds: float) -> str:
    """3:07:05"""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def words(seen: Glance) -> dict[str, str]:
    """The glance as names and texts, what is not known left out."""
    now, totals = seen.now, seen.totals
    drafted = sum(value for name, value in now.items() if name.startswith("drafted @"))
    accepted = sum(value for name, value in now.items() if name.startswith("accepted @"))
    captures = [value for name, value in now.items() if name.startswith("graph captures ")]
    found = {
        "on for": clock(seen.seconds),
        "epochs": f"{seen.epochs:,}",
        **{name: f"{totals[name]:,}" for name in ("requests", "cancellations", "preemptions") if name in totals},
        "workers": f"{seen.workers}",
        "tokens/s": f"{now['tokens/s']:,.0f}" if "tokens/s" in now else "",
        "accepted per round": f"{accepted / drafted:.2f}" if drafted else "",
        "queue": f"{now['queue']:,.0f}" if "queue" in now else "",
        "memory": f"{now['memory']:,.0f} MB" if "memory" in now else "",
        "device memory": f"{now['device memory']:,.0f} MB" if "device memory" in now else "",
        "graph captures": f"{sum(captures):,.0f}" if captures else "",
        "worst regret": f"{now['worst regret']:.2g} nats" if "worst regret" in now else "",
        "log10 E": f"{seen.log10_e:.2f}" if seen.log10_e is not None else "",
        "oracles": f"{seen.oracle_share:.0%} of the time" if seen.oracle_share is not None else "",
        "violations": f"{seen.violations:,}" + (f", {seen.kept:,} kept" if seen.kept < seen.violations else ""),
    }
    return {name: text for name, text in found.items() if text}


def headline(about: Mapping[str, Any]) -> str:
    """optimised on small/hybrid with small/hybrid-dflash2"""
    if not about.get("decoder"):
        return "a run that has not begun"
    said = [about["decoder"]]
    said += [
        f"{word} {checkpoint(about[name])}" for word, name in (("on", "target"), ("with", "draft")) if about.get(name)
    ]
    return " ".join(said)


def checkpoint(path: str) -> str:
    """The end of a checkpoint's path, which names it: small/hybrid."""
    return "/".join(Path(path).parts[-2:])
