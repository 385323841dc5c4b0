"""Claims: what a decoder promises. The suite tests the claim, never more."""

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """How drafted tokens are accepted when sampling."""

    NONE = "none"  # no speculation
    RATIO = "ratio"  # accept d iff u q(d) < p(d), else draw from max(p - q, 0)
    ONE_HOT = "one-hot"  # the draft counts as certain: accept with p(d), else draw from p without d
    SAMPLER_MATCH = "sampler-match"  # the target draws; a draft is accepted iff it equals that draw
    BLOCK = "block"  # joint verification of the whole block
    LOSSY = "lossy"  # the output law is not promised


class Method(StrEnum):
    """Where proposals come from."""

    NONE = "none"
    NGRAM = "ngram"
    DFLASH = "dflash"
    DFLASH2 = "dflash2"  # selector and convolution
    DFLASH_SELECTOR = "dflash-selector"
    DFLASH_CONV = "dflash-conv"
    MARKOV = "markov"
    ASSISTED = "assisted"  # a second, smaller language model
    SCRIPTED = "scripted"


class SeedContract(StrEnum):
    """When the same seed gives the same output."""

    NONE = "none"
    EQUAL_DRAFT_LENGTHS = "equal-draft-lengths"  # whatever the batch, slot, lag; draft lengths per round equal
    ALWAYS = "always"  # whatever the draft lengths, too


class DraftFormat(StrEnum):
    """What the linear modules of a drafter's checkpoint are evaluated in."""

    STORED = "stored"  # each in the format that its file has it in
    NVFP4 = "nvfp4"  # those that are stored dense are quantised when they are loaded, by ModelOpt's rule


@dataclass(frozen=True, slots=True)
class Greedy:
    """What greedy output promises against the target alone.

    `bitwise`: speculation on equals speculation off, token for token. `envelope` is the largest regret (nats, under
    the token's own prefix, in the reference) that the configuration's own rounding may cause; 0 states none. The suite
    measures what rounding to the claimed dtype does to this target: it holds a decoder to that, or to a narrower claim.
    """

    bitwise: bool
    envelope: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that a request is checked against; `max_draft` is K, the drafts of one round."""

    vocab_size: int
    max_context: int
    max_draft: int = 0
    max_batch: int = 1
    eos_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The promise of one configured decoder; computed from the configuration, never a constant.

    `sampling` names the fields of Sampling and Request that are honoured; all others are refused by InvalidRequest.
    """

    engine: str
    version: str
    rule: Rule
    method: Method
    greedy: Greedy
    sampling: frozenset[str]
    seed: SeedContract
    limits: Limits
    dtype: str
    weight_format: str = "dense"  # of the target: dense, fp8, nvfp4-w4a16, nvfp4-w4a4, mixed
    draft_format: DraftFormat = DraftFormat.STORED
    activation_format: str = "dense"
    kv_format: str = "dense"
    attention: str = "own"
    device: str = "cpu"
    threads: int = 1
