"""What changed since an earlier report of the same decoder."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .clauses import ordered
from .report import Loaded
from .verdicts import Verdict

RUN = ("decoder", "target", "draft", "rule", "draft_length", "dtype", "options", "profile", "seed", "without")
"""Fields of the header in which two runs of one thing are alike."""
TOLD = frozenset({Verdict.VIOLATED, Verdict.ERROR})  # whose detail is the news, too


@dataclass(frozen=True, slots=True)
class Changes:
    """Clauses by what became of them: `changed` and `new` by id with what they were, `still` violated, `absent` now.

    `unlike` says in which respects this is a run of something else; `header` are the other fields of the header that
    are not as they were.
    """

    changed: Mapping[str, str]
    new: tuple[str, ...]
    still: tuple[str, ...]
    absent: tuple[str, ...]
    same: int
    unlike: tuple[str, ...]
    header: tuple[str, ...]


def compare(before: Loaded, header: Mapping[str, Any], results: Iterable[Mapping[str, Any]]) -> Changes:
    """Lines of this run against a report; a verdict has changed where another one stands, a violation where it is seen
    otherwise."""
    earlier = {line["clause"]: line for line in before.verdicts}
    now = {line["clause"]: line for line in results}
    changed = {name: earlier[name]["verdict"] for name in now if name in earlier and differs(earlier[name], now[name])}
    kept = [name for name in now if name in earlier and name not in changed]
    fields = [name for name in before.header if name not in ("hash", "type", "date", "clauses")]
    other = [name for name in fields if before.header[name] != header.get(name)]
    return Changes(
        changed,
        ordered(now.keys() - earlier.keys()),
        ordered(name for name in kept if now[name]["verdict"] == Verdict.VIOLATED),
        ordered(earlier.keys() - now.keys()),
        len(kept),
        tuple(f"{name} {header.get(name)}, was {before.header[name]}" for name in RUN if name in other),
        tuple(name for name in other if name not in RUN),
    )


def differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two lines about one clause say something else."""
    return before["verdict"] != now["verdict"] or (now["verdict"] in TOLD and before["detail"] != now["detail"])
