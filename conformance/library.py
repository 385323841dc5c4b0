"""Clauses for an engine's own tests: one call, one AssertionError that holds every proof."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specqual import fixtures
from specqual.contract import Decoder, Make, Rule, Setup, Unsupported
from specqual.contract.errors import CheckpointError

from .chapter import Result
from .check import decided
from .clauses import CLAUSES, ordered, selected, status_of
from .lab import Lab, Run
from .options import DEFAULTS, fitting, listed
from .resolve import resolve
from .verdicts import MEANING, Outcome, Profile, Status, Verdict, outcome
from .waivers import Waiver


class Lent(Lab):
    """A laboratory around one finished decoder, which stays its owner's: it is never closed, and there is no other."""

    @classmethod
    def of(cls, decoder: Decoder, run: Run) -> "Lent":
        return cls(run, _made={(): decoder})

    def renew(self) -> None:
        """Nothing to close, and nothing that could take the decoder's place."""
        self._answers.clear()


def check(
    decoder: Make | Decoder | str,
    clauses: Iterable[str] | None = None,
    *,
    target: str | Path | None = None,
    draft: str | Path | None = None,
    rule: Rule | str = Rule.RATIO,
    draft_length: int | None = None,
    dtype: str | None = None,
    options: Mapping[str, Any] | None = None,
    profile: Profile | str = Profile.QUICK,
    seed: int = 0,
    waivers: Iterable[Waiver] = (),
) -> tuple[Result, ...]:
    """Decide clauses about a decoder and raise one AssertionError with every proof unless the run would exit with 0.

    `decoder` is a factory from Setup, the name of one as for `--decoder`, or a finished decoder. Of a finished one
    there is no second and no other configuration: clauses that need one are SKIPPED with that reason, and its owner
    closes it. `clauses` are ids, chapters or prefixes; all of the profile by default. Without `target` and `draft`, a
    factory is tried on fixtures that ship here. ValueError names an argument that cannot be used.
    """
    ready = isinstance(decoder, Decoder)
    if target is None and (ready or draft is not None):
        raise ValueError("target: is needed beside a finished decoder or a drafter")
    pair = (
        default() if target is None else (folder("target", target), None if draft is None else folder("draft", draft))
    )
    try:
        fitting(*pair)
    except CheckpointError as error:
        raise ValueError(f"draft: {error}") from None
    setup = Setup(
        target=pair[0],
        draft=pair[1],
        rule=Rule(rule),
        draft_length=draft_length,
        dtype=dtype,
        options=dict(options or {}),
    )
    named, make = factory(decoder)
    run = Run(named, make, setup, Profile(profile), seed)
    wanted = chosen(clauses, run.profile)
    lab = Lent.of(decoder, run) if isinstance(decoder, Decoder) else Lab(run)
    try:
        results = tuple(decided(lab, wanted, tuple(waivers)))
    finally:
        lab.renew()
    status = status_of([asdict(result) for result in results], run.profile)
    if status is not Status.CLEAN:
        raise AssertionError(told(results, run.profile, status))
    return results


def default() -> tuple[Path, Path]:
    """Target and drafter that are tried where none are named."""
    existing = set(fixtures.names())
    return next((fixtures.path(t), fixtures.path(d)) for t, d in DEFAULTS if existing.issuperset((t, d)))


def folder(name: str, value: str | Path) -> Path:
    if not Path(value).is_dir():
        raise ValueError(f"{name}: there is no directory {str(value)!r}")
    return Path(value).resolve()


def factory(decoder: Make | Decoder | str) -> tuple[str, Make]:
    """The name by which a decoder can be asked for again, and what makes it."""
    if isinstance(decoder, str):
        return decoder, resolve(decoder)
    if isinstance(decoder, Decoder):

        def refuse(setup: Setup) -> Decoder:
            raise Unsupported("needs another decoder than the finished one that was given; pass its factory instead")

        return f"{type(decoder).__module__}:{type(decoder).__qualname__}", refuse
    if not callable(decoder):
        raise ValueError(f"decoder: must be a factory, its name or a decoder, got {decoder!r}")
    return f"{decoder.__module__}:{decoder.__qualname__}", decoder


def chosen(clauses: Iterable[str] | None, profile: Profile) -> tuple[str, ...]:
    """Ids in the order of the table; ValueError names a pattern that finds none."""
    if clauses is None:
        return ordered(listed(profile))
    if isinstance(clauses, str):
        raise ValueError(f"clauses: must be a sequence of ids, got the text {clauses!r}")
    try:
        return ordered(selected(clauses))
    except ValueError as error:
        raise ValueError(f"clauses: {error}") from None


def told(results: Iterable[Result], profile: Profile, status: Status) -> str:
    """What failed with its proof; if nothing did, what was left open and why."""
    lines, left = list[str](), list[str]()
    for result in results:
        text = f"{result.clause} {result.verdict}: {result.detail}"
        shown = outcome(Verdict(result.verdict), CLAUSES[result.clause].level, profile)
        if shown is Outcome.FAILED:
            lines.append(result.proof or "\n".join([text, *filter(None, [result.evidence["notes"].get("traceback")])]))
        elif shown is Outcome.SKIPPED:
            left.append(text)
    return "\n\n".join([MEANING[status], *(lines or left)])
