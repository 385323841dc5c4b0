"""The pairs of fixtures that faults are looked for on."""

from dataclasses import dataclass

from specqual import fixtures
from specqual.contract import Rule, Setup


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter, by fixture name (`draft` None for none), with options of the decoder, rule and dtype."""

    target: str
    draft: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    rule: Rule = Rule.RATIO
    dtype: str | None = None

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.options]
        words += [str(self.rule)] if self.rule is not Rule.RATIO else []
        words += [self.dtype] if self.dtype is not None else []
        return " ".join([self.draft or self.target, *words])

    @property
    def setup(self) -> Setup:
        draft = None if self.draft is None else fixtures.path(self.draft)
        target, free = fixtures.path(self.target), dict(self.options)
        return Setup(target=target, draft=draft, rule=self.rule, dtype=self.dtype, options=free)


DFLASH, DFLASH2 = Pair("nano/dense", "nano/dense-dflash"), Pair("nano/dense", "nano/dense-dflash2")
MARKOV, LOOKUP = Pair("nano/dense", "nano/dense-markov"), Pair("nano/dense")
HYBRID, HYBRID2 = Pair("nano/hybrid", "nano/hybrid-dflash"), Pair("nano/hybrid", "nano/hybrid-dflash2")
WINDOW2, FLAT = Pair("nano/window", "nano/window-dflash2"), Pair("table/flat", options=(("ngram", "2"),))
BF16, HYBRID16 = (Pair(f"nano/{name}", f"nano/{name}-dflash2", dtype="bfloat16") for name in ("dense", "hybrid"))
LOOSE = Pair("nano/hybrid", "nano/hybrid-dflash2", (("invariant", "0"),), dtype="bfloat16")  # promises no bits
