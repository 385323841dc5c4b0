"""Command-line options of a conformance run, and the Run that they ask for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specqual import fixtures
from specqual.contract import Rule, Setup
from specqual.contract.checkpoint import fit
from specqual.contract.config import parse_target
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.keys import read_json

from .audit import checked
from .clauses import CLAUSES, selected
from .features import features
from .lab import Run
from .report import BadReport, Loaded
from .resolve import BUILT_IN, UnknownDecoder, resolve
from .verdicts import Profile
from .waivers import BadWaiver, Waiver, read_waivers

DEFAULTS = (("small/hybrid", "small/hybrid-dflash2"), ("nano/hybrid", "nano/hybrid-dflash2"))


class BadOption(ValueError):
    """A command line that cannot be followed; names the option."""


def add_options(parser: pytest.Parser) -> None:
    """Register every option in a group of its own; a name that is taken gets the prefix --specqual-."""
    group = parser.getgroup("specqual", "conformance of a speculative decoder")

    def add(name: str, **attributes: Any) -> None:
        attributes["dest"] = "specqual_" + name.lstrip("-").replace("-", "_")
        try:
            group.addoption(name, **attributes)
        except ValueError:
            group.addoption("--specqual-" + name.lstrip("-"), **attributes)

    add("--decoder", default="optimised", metavar="NAME", help=f"{', '.join(BUILT_IN)}, or package.module:make")
    add("--target", metavar="DIR", help="target checkpoint (default: the trained hybrid of the clone, else nano)")
    add("--draft", metavar="DIR", help="drafter checkpoint, or none")
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="option of the decoder; may be repeated")
    add("--rule", metavar="RULE", help=f"{', '.join(Rule)} (default: ratio)")
    add("--draft-length", metavar="K", help="drafts of one round (default: the drafter's own)")
    add("--dtype", metavar="DTYPE", help="dtype of the decoder (default: its own)")
    add("--profile", default="quick", metavar="NAME", help=f"{', '.join(Profile)} (default: quick)")
    add("--clause", action="append", default=[], metavar="ID", help="only this clause, chapter or prefix; repeatable")
    add("--seed", default="0", metavar="N", help="seed of every random choice (default: 0)")
    add(
        "--estimate",
        action="store_true",
        default=False,
        help="print minutes, tokens and what would be seen; run nothing",
    )
    what = "do not draw this feature, or those that begin so; for tests of the suite itself; repeatable"
    add("--without", action="append", default=[], metavar="FEATURE", help=what)
    add("--report", metavar="DIR", help="write report.jsonl, index.html and junit.xml there")
    add("--waivers", metavar="FILE", help="TOML file of excused clauses")
    add("--baseline", metavar="DIR", help="show only what changed since this earlier report")
    add("--list", action="store_true", default=False, help="print every clause and exit")


@dataclass(frozen=True, slots=True)
class Asked:
    """Everything that a command line asks for."""

    run: Run
    clauses: frozenset[str]
    report: Path | None
    waivers: tuple[Waiver, ...]
    baseline: Loaded | None = None
    estimate: bool = False


def _integer(name: str, value: str | None, low: int) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < low:
        raise BadOption(f"{name}: must be an integer of at least {low}, got {value!r}")
    return int(value)


def _one_of(name: str, value: str, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise BadOption(f"{name}: must be one of {', '.join(kind)}, got {value!r}") from None


def _directory(name: str, value: str) -> Path:
    path = Path(value)
    if not path.is_dir():
        raise BadOption(f"{name}: there is no directory {value!r}")
    return path.resolve()


def _checkpoints(target: str | None, draft: str | None) -> tuple[Path, Path | None]:
    if target is None and draft is None:
        existing = set(fixtures.names())
        for pair in DEFAULTS:
            if existing.issuperset(pair):
                return fixtures.path(pair[0]), fixtures.path(pair[1])
        raise BadOption("--target: no fixture is installed, so a directory is needed")
    if target is None:
        raise BadOption("--target: a drafter alone is not enough; name its target")
    without = draft is None or draft == "none"
    return _directory("--target", target), None if without else _directory("--draft", str(draft))


def fitting(target: Path, draft: Path | None) -> None:
    """Raise CheckpointError, naming the field, for a drafter of other sizes than the target's, whatever decoder is to
    load them; what the contract does not know is the decoder's business."""
    try:
        one = parse_target(read_json(target / "config.json"))
        other = None if draft is None else parse_draft(read_json(draft / "config.json"))
    except CheckpointError:
        return
    if other is not None:
        fit(other, one)


def free(entries: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise BadOption(f"--option: must look like key=value, got {entry!r}")
        if name in found:
            raise BadOption(f"--option: {name} is given twice")
        found[name] = value
    return found


def listed(profile: Profile) -> frozenset[str]:
    """The clause ids of a profile, one a line in its file; # begins a comment."""
    text = (Path(__file__).parent / "profiles" / f"{profile}.txt").read_text(encoding="utf-8")
    ids = [line.split("#")[0].strip() for line in text.splitlines()]
    found = frozenset(identifier for identifier in ids if identifier)
    unknown = found - CLAUSES.keys()
    if unknown:
        raise BadOption(f"--profile: {profile} lists {min(unknown)}, which is no clause")
    return found


def read_options(options: Any) -> Asked:
    """Check every option; BadOption names the first that cannot be followed."""
    profile = _one_of("--profile", options.specqual_profile, Profile)
    target, draft = _checkpoints(options.specqual_target, options.specqual_draft)
    try:
        fitting(target, draft)
    except CheckpointError as error:
        raise BadOption(f"--draft: {error}") from error
    rule = _one_of("--rule", options.specqual_rule or Rule.RATIO, Rule)
    setup = Setup(
        target=target,
        draft=None if rule is Rule.NONE else draft,  # no rule, no speculation
        rule=rule,
        draft_length=_integer("--draft-length", options.specqual_draft_length, 0),
        dtype=options.specqual_dtype,
        options=free(options.specqual_option),
    )
    seed = _integer("--seed", options.specqual_seed, 0)
    assert seed is not None
    wanted = listed(profile)
    if options.specqual_clause:
        try:
            wanted = selected(options.specqual_clause)
        except ValueError as error:
            raise BadOption(f"--clause: {error}; see --list") from error
    try:
        without = features(options.specqual_without)
    except ValueError as error:
        raise BadOption(f"--without: {error}") from error
    try:
        make = resolve(options.specqual_decoder)
        waivers = read_waivers(Path(options.specqual_waivers)) if options.specqual_waivers else ()
    except (UnknownDecoder, BadWaiver) as error:
        raise BadOption(str(error)) from error
    try:
        baseline = checked(Path(options.specqual_baseline)) if options.specqual_baseline else None
    except BadReport as error:
        raise BadOption(f"--baseline: {error}") from error
    report = Path(options.specqual_report).resolve() if options.specqual_report else None
    if report is not None and report.exists() and not report.is_dir():
        raise BadOption(f"--report: {options.specqual_report!r} is not a directory")
    run = Run(options.specqual_decoder, make, setup, profile, seed, without)
    return Asked(run, wanted, report, waivers, baseline, options.specqual_estimate)
