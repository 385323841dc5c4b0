"""The pairs of fixtures that faults are looked for on."""

from dataclasses import dataclass

from specqual import fixtures
from specqual.contract import Rule, Setup


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter, by fixture name, with options of the decoder and its rule; `draft` None for none."""

    target: str
    draft: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    rule: Rule = Rule.RATIO

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.options]
        words += [str(self.rule)] if self.rule is not Rule.RATIO else []
        return " ".join([self.draft or self.target, *words])

    @property
    def setup(self) -> Setup:
        draft = None if self.draft is None else fixtures.path(self.draft)
        return Setup(target=fixtures.path(self.target), draft=draft, rule=self.rule, options=dict(self.options))


DFLASH, DFLASH2 = Pair("nano/dense", "nano/dense-dflash"), Pair("nano/dense", "nano/dense-dflash2")
MARKOV, LOOKUP = Pair("nano/dense", "nano/dense-markov"), Pair("nano/dense")
HYBRID, HYBRID2 = Pair("nano/hybrid", "nano/hybrid-dflash"), Pair("nano/hybrid", "nano/hybrid-dflash2")
WINDOW2, FLAT = Pair("nano/window", "nano/window-dflash2"), Pair("table/flat", options=(("ngram", "2"),))
