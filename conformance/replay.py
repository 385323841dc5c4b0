"""The command that runs one clause of a run again, made from what the header of a report states."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from shlex import join, split
from typing import Any


def command(
    clause: str,
    *,
    decoder: str,
    target: str,
    draft: str | None,
    rule: str,
    draft_length: int | None,
    dtype: str | None,
    options: Mapping[str, str],
    profile: str,
    seed: int,
    without: Iterable[str],
) -> str:
    """The command line; `target` and `draft` are folders."""
    words = ["pytest", "--pyargs", "specqual.conformance", "--decoder", decoder, "--target", target]
    words += ["--draft", "none" if draft is None else draft, "--rule", rule]
    words += ["--draft-length", str(draft_length)] if draft_length is not None else []
    words += ["--dtype", dtype] if dtype is not None else []
    for name, value in sorted(options.items()):
        words += ["--option", f"{name}={value}"]
    for feature in sorted(without):
        words += ["--without", feature]
    return join([*words, "--profile", profile, "--clause", clause, "--seed", str(seed)])


STATED = ("decoder", "rule", "draft_length", "dtype", "options", "profile", "seed", "without")


def follows(stated: Any, header: Mapping[str, Any], clause: str) -> bool:
    """Whether a command is the one that runs this clause of the run of a header again. A header names the folders of
    the checkpoints without the way to them, which may be another on every machine."""
    try:
        words = split(stated)
        target, draft = (words[words.index(name) + 1] for name in ("--target", "--draft"))
        folders = {"target": target, "draft": None if header["draft"] is None else draft}
        wanted = command(clause, **folders, **{name: header[name] for name in STATED})
    except (LookupError, TypeError, ValueError, AttributeError):
        return False
    names = PurePath(target).name, None if header["draft"] is None else PurePath(draft).name
    return bool(stated == wanted and names == (header["target"], header["draft"]))
