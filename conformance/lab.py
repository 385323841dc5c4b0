"""The laboratory: the decoder under test with everything that a clause needs to examine it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import specqual.contract as contract
from specqual.contract import Claims, Decoder, Make, Method, Request, Rule, Script, Setup, Tape
from specqual.contract.config import parse_target
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.keys import read_json
from specqual.reference.text import Text, load_text

from .drive import Answer, DecoderError, NotOffered, guarded, serve
from .features import FEATURES
from .judge import Judge
from .replay import command
from .rounding import Envelope, number
from .sources import fingerprint
from .statistics.budget import Ledger
from .verdicts import Profile

if TYPE_CHECKING:
    from .campaign import Campaign
    from .drafter import DraftTwin
    from .twin import Twin


@dataclass(frozen=True, slots=True)
class Effort:
    """Sizes of one profile."""

    prompts: int  # requests of a clause about one decoder
    tokens: int  # output length where much matters
    span: int  # output length where a few rounds do
    examples: int  # drawn by Hypothesis
    changes: int  # of a checkpoint, per clause
    samples: int  # of a black box, at most: evidence ends them early
    long: int  # outputs of it with speculation, and as many without, of `tokens` tokens each
    wanted: float  # total variation, or lean, below which a law holds
    attempts: int  # to shrink a failing request
    histories: int  # of at least 50 rules
    replays: int  # of states per history, beside those that a plain run passes
    shrinks: int  # attempts to shrink a failing history
    rejections: int  # of one run in which every draft is wrong


EFFORTS = {
    Profile.QUICK: Effort(4, 32, 12, 12, 12, 2_400, 48, 0.45, 24, 3, 4, 60, 48),
    Profile.DEVICE: Effort(4, 48, 12, 24, 12, 2_400, 48, 0.45, 24, 3, 4, 24, 96),
    Profile.CORE: Effort(16, 96, 24, 100, 60, 40_000, 160, 0.15, 100, 100, 4, 200, 300),
    Profile.NIGHTLY: Effort(16, 96, 24, 100, 60, 100_000, 1_000, 0.12, 100, 2_000, 4, 200, 2_000),
    Profile.CERTIFY: Effort(32, 192, 32, 400, 400, 400_000, 2_100, 0.1, 200, 400, 8, 400, 1_000),
}
MEASURED, LENGTH = 48, 32  # sequences that rounding is measured on, and tokens of each


@dataclass(frozen=True, slots=True)
class Run:
    """What one run examines, and how much of it."""

    decoder: str
    make: Make
    setup: Setup
    profile: Profile = Profile.QUICK
    seed: int = 0
    without: frozenset[str] = frozenset()  # features that are not drawn

    @property
    def effort(self) -> Effort:
        return EFFORTS[self.profile]

    def replay(self, clause: str) -> str:
        """The command that runs one clause of this run again."""
        setup = self.setup
        return command(
            clause,
            decoder=self.decoder,
            target=str(setup.target),
            draft=None if setup.draft is None else str(setup.draft),
            rule=str(setup.rule),
            draft_length=setup.draft_length,
            dtype=setup.dtype,
            options={name: str(value) for name, value in setup.options.items()},
            profile=str(self.profile),
            seed=self.seed,
            without=self.without,
        )


@dataclass
class Lab:
    """One decoder under test. Decoders are made on demand, kept, and closed together."""

    run: Run
    budget: Ledger = field(default_factory=Ledger)
    origin: "Lab | None" = None  # the laboratory of the run, where this one is for another checkpoint
    _made: dict[tuple[Any, ...], Decoder | Exception] = field(default_factory=dict)
    _answers: dict[Request, Answer] = field(default_factory=dict)

    @property
    def effort(self) -> Effort:
        return self.run.effort

    @property
    def thorough(self) -> bool:
        """Whether cases are taken in full that a quick run takes in part."""
        return self.run.profile not in (Profile.QUICK, Profile.DEVICE)

    def has(self, feature: str) -> bool:
        """Whether this feature is to be drawn."""
        assert feature in FEATURES, feature
        return feature not in self.run.without

    def random(self, clause: str) -> Random:
        """Random choices of one clause; other clauses do not disturb it."""
        return Random(f"{self.run.seed}/{clause}")

    # Decoders

    def make(self, **changes: Any) -> Decoder:
        """The decoder of the run's setup with these fields changed; the same changes give the same object."""
        key = tuple(sorted((name, str(value)) for name, value in changes.items()))
        if key not in self._made:
            try:
                setup = replace(self.run.setup, **changes)
                decoder = guarded("make", lambda: self.run.make(setup), 600.0)
                guarded("claims", lambda: decoder.claims)
                self._made[key] = decoder
            except Exception as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, Exception):
            raise made
        return made

    def build(self, **changes: Any) -> Decoder:
        """A decoder of its own for the caller, who closes it; whatever the factory raises comes through."""
        return self.run.make(replace(self.run.setup, **changes))

    @property
    def decoder(self) -> Decoder:
        return self.make()

    @property
    def plain(self) -> Decoder:
        """The same engine with speculation off; NotOffered where it cannot be switched off."""
        decoder = self.make(draft=None, draft_length=None, rule=Rule.NONE)
        if decoder.claims.limits.max_draft:
            raise NotOffered("speculation cannot be switched off: without a drafter the decoder still claims drafts")
        return decoder

    def beside(self, **changes: Any) -> "Lab":
        """The laboratory of the same decoder with these fields of its setup changed. It takes from the same budget, and
        goes by the same judge where the target is the same."""
        other = Lab(replace(self.run, setup=replace(self.run.setup, **changes)), self.budget, self.origin or self)
        if other.run.setup.target == self.run.setup.target:
            other.judge = self.judge
        return other

    def tiny(self, **changes: Any) -> Decoder:
        """As `make`, for a target of the suite's own; NotOffered if the decoder cannot load it."""
        try:
            return self.make(**changes)
        except Exception as error:
            raise NotOffered(f"the decoder does not load the target that this needs: {error}") from error

    def answer(self, request: Request) -> Answer:
        """What the configured decoder answers to a request alone; asked once, remembered for every clause."""
        if request not in self._answers:
            self._answers[request] = serve(self.decoder, [request])[0]
        return self._answers[request]

    def renew(self) -> None:
        """Close and forget every decoder, so that what a failure left behind does not reach the next clause."""
        for key, decoder in list(self._made.items()):
            if not isinstance(decoder, Exception):
                del self._made[key]
                with suppress(DecoderError):
                    guarded("close", decoder.close)

    def require(self, *protocols: str, decoder: Decoder | None = None) -> None:
        """Raise NotOffered, naming it, for the first protocol that the decoder does not offer."""
        for name in protocols:
            if not isinstance(decoder or self.decoder, getattr(contract, name)):
                raise NotOffered(f"the decoder does not offer {name}")

    def honours(self, *fields: str) -> bool:
        return set(fields) <= self.claims.sampling

    def require_fields(self, *fields: str) -> None:
        """Raise NotOffered for the first field of a request that the decoder does not claim to honour."""
        for name in fields:
            if name not in self.claims.sampling:
                raise NotOffered(f"the decoder does not claim to honour {name}")

    @property
    def claims(self) -> Claims:
        return self.decoder.claims

    @property
    def drafts(self) -> bool:
        """Whether a drafter is configured, beside any that a test may pass in: one that the decoder claims, or one that
        it was given, even if it claims to draft nothing."""
        setup, claims = self.run.setup, self.claims
        given = setup.draft is not None and setup.rule is not Rule.NONE
        return given or (self.longest > 0 and claims.method not in (Method.NONE, Method.SCRIPTED))

    @property
    def speculative(self) -> bool:
        """Whether anybody may draft."""
        return self.longest > 0 or self.drafts

    @property
    def longest(self) -> int:
        """K, the most drafts of one round."""
        return self.claims.limits.max_draft

    @property
    def sampled_rule(self) -> Rule:
        """The rule claimed for sampling; NotOffered for a lossy one, or where sampling is not claimed."""
        self.require_fields("temperature")
        if self.claims.rule is Rule.LOSSY:
            raise NotOffered("the decoder claims no output law: its rule is lossy")
        return self.claims.rule

    @cached_property
    def campaign(self) -> "Campaign":
        """The histories of this run, played once for all chapters."""
        from .campaign import Campaign

        return Campaign(self)

    @cached_property
    def twin(self) -> "Twin":
        """Undisturbed decoders of the run's setup, and what they answer."""
        from .twin import Twin

        return Twin(self)

    @cached_property
    def drafter(self) -> "DraftTwin":
        """The reference drafter; NotOffered where the reference has none like the run's."""
        from .drafter import DraftTwin

        return DraftTwin.of(self)

    # The judge

    @cached_property
    def judge(self) -> Judge:
        return Judge.of(self.run.setup.target)

    @cached_property
    def text(self) -> Text | None:
        return load_text(Path(self.run.setup.target))

    @cached_property
    def window(self) -> int | None:
        """The longest sliding window of target and drafter, or None where there is none."""
        found = []
        for directory, parse in ((self.run.setup.target, parse_target), (self.run.setup.draft, parse_draft)):
            try:
                found.append(parse(read_json(directory / "config.json")).window if directory is not None else None)
            except CheckpointError:
                continue  # a table, or a checkpoint that only the decoder knows
        return max((window for window in found if window is not None), default=None)

    def rounding(self, decoder: Decoder | None = None, judge: Judge | None = None) -> Envelope:
        """What rounding to the claimed dtype explains, measured on this judge's target, the run's own by default."""
        judge, dtype = judge or self.judge, (decoder or self.decoder).claims.dtype
        own = judge is self.judge and self.run.setup.target == self.home.target
        pay = partial(self.pay, "target", own, judge.directory)
        return judge.rounding(dtype, lambda: self.sequences(judge, MEASURED), pay)

    @property
    def home(self) -> Setup:
        """The setup of the run, also where this laboratory is for another checkpoint."""
        return (self.origin or self).run.setup

    def pay(self, what: str, own: bool, *directories: Path | None) -> float:
        """The error rate of measuring rounding of a target, or of a drafter with its target, kept in these directories:
        the run's own, or another."""
        if own:
            return self.budget.once(f"rounding of the {what}")
        return self.budget.once(f"rounding of another {what}", fingerprint(*(path for path in directories if path)))

    def envelope(self, decoder: Decoder | None = None, judge: Judge | None = None) -> float:
        """Regret in nats that rounding may cause: as measured, or as claimed where the claim is narrower."""
        stated = (decoder or self.decoder).claims.greedy.envelope
        measured = self.rounding(decoder, judge).nats
        return min(stated, measured) if stated > 0 else measured

    @property
    def must_repeat(self) -> bool:
        """Whether two runs of one request must agree token for token: no tie excuses a difference."""
        return self.claims.greedy.bitwise or number(self.claims.dtype) is None

    def sequences(self, judge: Judge, count: int) -> list[tuple[int, ...]]:
        """Tokens to measure on: pieces of text where this target has a tokenizer, every fourth one drawn at random."""
        from .generators import sequences, usable  # the only use of prompts here

        known, every = judge is self.judge, range(judge.target.vocab_size)
        text, drawn = (self.text, usable(self)) if known else (None, every)
        return sequences(text, drawn, every, self.random("rounding"), count, LENGTH)


@contextmanager
def elsewhere(lab: Lab, **changes: Any) -> Iterator[Lab]:
    """The laboratory of the same decoder with these fields of its setup changed; NotOffered if it cannot be made."""
    inner = lab.beside(**changes)
    try:
        inner.tiny()
        yield inner
    finally:
        inner.renew()


@contextmanager
def scheduled(decoder: Decoder, **sizes: int) -> Iterator[Decoder]:
    """The decoder under another commit lag or draft length for the body; behind it, no lag and the most drafts."""
    assert isinstance(decoder, contract.Schedulable)
    usual = {"lag": 0, "draft": decoder.claims.limits.max_draft}
    guarded("schedule", lambda: decoder.schedule(**sizes))
    try:
        yield decoder
    finally:
        guarded("schedule", lambda: decoder.schedule(**{name: usual[name] for name in sizes}))


@contextmanager
def scripted(decoder: Decoder, script: Script) -> Iterator[None]:
    """Give the decoder this drafter for the body."""
    assert isinstance(decoder, contract.Scripted)
    guarded("script", lambda: decoder.script(script))
    try:
        yield
    finally:
        guarded("script", lambda: decoder.script(None))


@contextmanager
def taped(decoder: Decoder, tape: Tape) -> Iterator[None]:
    """Give the decoder this source of numbers for the body."""
    assert isinstance(decoder, contract.Taped)
    guarded("tape", lambda: decoder.tape(tape))
    try:
        yield
    finally:
        guarded("tape", lambda: decoder.tape(None))
