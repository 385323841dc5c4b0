"""Stages: one target with its drafter, the decoder that lives on over all epochs on it, and its judge."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from specqual import fixtures
from specqual.conformance.drive import DecoderError, deadline
from specqual.conformance.generators import sequences
from specqual.conformance.judge import Judge
from specqual.conformance.lab import Lab, Run
from specqual.conformance.statistics.budget import ALPHA
from specqual.contract import Inspectable, Schedulable, Scripted, Setup, Unsupported
from specqual.contract.errors import CheckpointError

from .calls import called
from .plan import Room
from .scenarios import OWN

DECISIONS = 1000  # times as many as `rounding` plans for in one run
MEASURED = 48  # sequences that rounding is measured on
ROUNDING = 0.3  # of the error budget, shared by all stages
FAR = 40_000  # positions of the far stage
BUILD = 600.0  # seconds
FIELDS = frozenset(field.name for field in fields(Setup))


class NoStage(Exception):
    """The decoder cannot be had on this stage; says why. What the stage is for is then not established."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A stage's checkpoints and sizes. `target` names a fixture, or is "" for the run's own; `pool` says how many
    samples of `reach` tokens the page pool holds in all, None for as many as the decoder likes."""

    name: str
    target: str
    draft: str | None
    longest: int | None = None  # K, where only scripts draft
    options: Mapping[str, int] = field(default_factory=dict)
    positions: int | None = None  # that the checkpoint is said to have
    sliding: bool = False  # every layer of the target
    measured: int = 32  # tokens of the sequences that rounding is measured on


GROUNDS = {
    ground.name: ground
    for ground in (
        Ground(OWN, "", None, options={"prefixes": 48, "remembered": 64}),
        Ground("nano", "nano/hybrid", "nano/hybrid-dflash2", options={"samples": 16, "prefixes": 48, "remembered": 64}),
        Ground(
            "tight",
            "nano/window",
            "nano/window-dflash2",
            options={"samples": 8, "pages": 150, "prefixes": 8, "remembered": 64},
        ),
        Ground("table", "table/peaked", None, 3, {"samples": 16, "remembered": 64}),
        Ground("steep", "table/steep", None, 3, {"samples": 16, "remembered": 64}),
        Ground("zeros", "table/zeros", None, 3, {"samples": 16, "remembered": 16}),
        Ground(
            "far",
            "nano/window",
            "nano/window-dflash",
            options={"samples": 2, "prefixes": 8, "remembered": 16},
            positions=FAR,
            sliding=True,
        ),
        Ground("bare", "nano/window", None, 1, {"samples": 1, "prefixes": 0, "remembered": 16}, FAR, sliding=True),
    )
}


@dataclass
class Stage:
    """A ground with the run's decoder on it. `behind` are the epochs that the living decoder has served."""

    ground: Ground
    run: Run
    scale: float = 1.0
    behind: list[tuple[str, int]] = field(default_factory=list)
    free: dict[str, int] = field(default_factory=dict)  # of the living decoder, when it was made or last lost some
    refused: str | None = None  # why no decoder can be had; asked once
    _kept: TemporaryDirectory[str] | None = None
    _decoder: Any = None
    _twin: Any = None

    @cached_property
    def setup(self) -> Setup:
        ground, own = self.ground, self.run.setup
        if not ground.target:
            return replace(own, options={**self._taken(own, ground.options), **own.options})
        try:
            target = fixtures.path(ground.target)
            draft = None if ground.draft is None or own.rule == "none" else fixtures.path(ground.draft)
        except ValueError as error:
            raise NoStage(str(error)) from error
        if ground.positions is not None:
            target = self._changed(target, ground)
            draft = None if draft is None else self._changed(draft, ground)
        kept = {name: value for name, value in own.options.items() if name not in ("ngram", "pages", "samples")}
        setup = replace(own, target=target, draft=draft, draft_length=ground.longest, options=kept)
        return replace(setup, options={**self._taken(setup, ground.options), **kept})

    def _changed(self, directory: Path, ground: Ground) -> Path:
        """A copy of a checkpoint that says of more positions and, where asked for, of sliding layers only."""
        if self._kept is None:
            self._kept = TemporaryDirectory(prefix="specqual-soak-")
        copy = Path(self._kept.name) / directory.name
        if not copy.exists():
            shutil.copytree(directory, copy)
            config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
            config["max_position_embeddings"] = ground.positions
            if ground.sliding and "layer_types" in config:
                config["layer_types"] = ["sliding_attention"] * len(config["layer_types"])
            (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return copy

    def _taken(self, setup: Setup, options: Mapping[str, int]) -> dict[str, int]:
        """As many of these options as the decoder takes: they are the optimised decoder's, and another has others. What
        it says against one is not read, since whatever is amiss beside will be said again without them."""
        taken: dict[str, int] = {}
        for name, value in options.items():
            try:
                called(self._make(replace(setup, options={**setup.options, name: value})).close)
            except ValueError:
                continue
            taken[name] = value
        return taken

    def _made(self, **options: Any) -> Any:
        """A new decoder; NoStage where it says that it cannot be had, DecoderError where it fails in any other way."""
        if self.refused is not None:
            raise NoStage(self.refused)
        try:
            return self._make(replace(self.setup, options={**self.setup.options, **options}))
        except NoStage as error:
            self.refused = str(error)
            raise
        except (Unsupported, ValueError) as error:
            known = FIELDS | {*self.run.setup.options, *self.ground.options}
            refusal = isinstance(error, Unsupported | CheckpointError) or str(error).partition(":")[0] in known
            if not refusal:
                raise DecoderError(f"make raised {type(error).__name__}: {error}") from error
            self.refused = f"no decoder on {self.ground.name}: {error}"
            raise NoStage(self.refused) from error

    def _make(self, setup: Setup) -> Any:
        """A decoder; what it raises is a DecoderError, unless it is Unsupported or a ValueError, which may name one."""
        try:
            with deadline(BUILD):
                return self.run.make(setup)
        except (DecoderError, Unsupported, ValueError):
            raise
        except Exception as error:
            raise DecoderError(f"make raised {type(error).__name__}: {error}") from error

    @property
    def decoder(self) -> Any:
        """The decoder that lives on; made when it is first asked for, and again behind `renew`."""
        if self._decoder is None:
            self._decoder = self._made()
            self.free = self.resources()
        return self._decoder

    def resources(self) -> dict[str, int]:
        """What is free now; nothing where the decoder does not tell."""
        return dict(called(self._decoder.resources)) if isinstance(self._decoder, Inspectable) else {}

    @property
    def twin(self) -> Any:
        """A decoder of the same make in which nothing is ever disturbed: requests go through it one after the other."""
        if self._twin is None:
            self._twin = self._made(**({"prefixes": 0} if "prefixes" in self.setup.options else {}))
        return self._twin

    def renew(self) -> None:
        """Close both decoders, and go on with new ones: an epoch broke, and they may be in any state."""
        for decoder in (self._decoder, self._twin):
            if decoder is not None:
                with suppress(DecoderError):  # it has failed already; what it holds may be all that there is of it
                    called(decoder.close)
        self._decoder = self._twin = None
        self.behind.clear()

    def close(self) -> None:
        self.renew()
        if self._kept is not None:
            self._kept.cleanup()

    # the judge

    @cached_property
    def lab(self) -> Lab:
        """The laboratory for this stage's checkpoints; its decoders are not used."""
        return Lab(replace(self.run, setup=self.setup))

    @property
    def judge(self) -> Judge:
        return self.lab.judge

    @cached_property
    def room(self) -> Room:
        claims, decoder = self.decoder.claims, self.decoder
        drawn = tuple(token for token in range(claims.limits.vocab_size) if token not in claims.limits.eos_ids)
        return Room(
            claims.limits,
            drawn,
            claims.sampling,
            isinstance(decoder, Scripted),
            isinstance(decoder, Schedulable),
            self.lab.text if not self.ground.target else None,
            self.scale,
        )

    @cached_property
    def envelope(self) -> float:
        """Regret (nats) that rounding to the claimed dtype explains, in all decisions of a long run together."""
        judge, claims = self.judge, self.decoder.claims
        every, text, chance = range(judge.target.vocab_size), self.room.text, Random(f"{self.run.seed}/rounding")

        def measured() -> list[tuple[int, ...]]:
            drawn = every if text is None else self.room.usable
            return sequences(text, drawn, every, chance, MEASURED, self.ground.measured)

        found = judge.rounding(claims.dtype, measured, lambda: ALPHA * ROUNDING / len(GROUNDS) / DECISIONS).nats
        stated = claims.greedy.envelope
        return min(stated, found) if stated > 0 else found
