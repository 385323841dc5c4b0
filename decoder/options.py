"""The options of this decoder: what `--option KEY=VALUE` may say."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any

from specqual.contract import DraftFormat

from .attention import BACK_ENDS
from .policies import Policies

LEAST = {"prefixes": 0, "remembered": 16, "draft_context": 0, "invariant": 0, "graphs": 0}  # 1 for all other options
MOST = {"graphs": 1}
NAMED = {
    "attention": (*BACK_ENDS, "flash"),
    "device": ("cpu", "cuda", "interpreter"),
    "draft_format": tuple(map(str, DraftFormat)),
}  # options that are names


@dataclass(frozen=True, slots=True)
class Options:
    """The decoder's own options: `ngram` looks up suffixes of so many tokens instead of using a drafter; `samples` may
    be in at once; `pages` of the pool, by default enough for each of them to fill the context; `prefixes` kept in the
    prefix cache, counted in chunks of 64 tokens, 0 for none; `remembered` requests keep their rounds after their end.
    `attention` is "own", torch's "sdpa" or, on a GPU, "flash" for flash-attn, and `invariant` 0 runs all rows of a pass
    in one call instead of tile by tile: they show what the promise about bits costs, and do not make it. `device`
    "cuda" runs the Triton kernels, and "interpreter" runs the same kernels on the host, slowly. On both, `graphs` 1
    captures passes by the shape of their batch and runs them again, at most `captured` shapes at a time, and 0 runs
    each as it comes; it is 1 by default on "cuda" with its own attention, and cannot be with another one.
    `draft_format` "nvfp4" quantises those modules of a drafter that are stored dense, when they are loaded: other
    drafts, and never another greedy output. The others are those of Policies."""

    ngram: int | None = None
    samples: int = 16
    pages: int | None = None
    prefixes: int = 256
    remembered: int = 1024
    selector_rows: int | None = None
    draft_tokens: int | None = None
    draft_context: int | None = None
    bucket: int | None = None
    attention: str = "own"
    invariant: int = 1
    device: str = "cpu"
    graphs: int | None = None
    captured: int = 64
    draft_format: str = "stored"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        """Read options by name, numbers also as text; ValueError names an unknown one or a value that does not fit."""
        known = [field.name for field in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"{name}: unknown option; there are {', '.join(known)}")
            if name in NAMED:
                if value not in NAMED[name]:
                    raise ValueError(f"{name}: must be {' or '.join(NAMED[name])}, got {value!r}")
                continue
            low, high = LEAST.get(name, 1), MOST.get(name, inf)
            if isinstance(value, bool) or not str(value).isdecimal() or not low <= int(value) <= high:
                most = f" and at most {high}" if name in MOST else ""
                raise ValueError(f"{name}: must be an integer of at least {low}{most}, got {value!r}")
        typed: dict[str, Any] = {name: value if name in NAMED else int(value) for name, value in given.items()}
        return cls(**typed)

    @property
    def captures(self) -> bool:
        """Whether passes on a device are captured."""
        return self.device == "cuda" and self.attention == "own" if self.graphs is None else bool(self.graphs)

    @property
    def policies(self) -> Policies:
        return Policies(**{field.name: getattr(self, field.name) for field in fields(Policies)})
