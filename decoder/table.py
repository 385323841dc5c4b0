"""Table targets: laws looked up by what stands before, so that a whole transaction can be enumerated exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch

from specqual.contract.errors import CheckpointError
from specqual.contract.keys import Keys, read_json

from .memory import Store
from .pages import Stream
from .span import Pass, Span

MODEL_TYPE = "specqual_table"
FAR = 2**20  # tokens of context where the file names no limit


@dataclass(frozen=True, slots=True)
class Table:
    """A target without weights or state: the logits behind a prefix belong to its longest known suffix."""

    vocab_size: int
    eos_ids: tuple[int, ...]
    max_context: int
    context: int
    logits: dict[tuple[int, ...], tuple[float, ...]]

    @property
    def streams(self) -> tuple[Stream, ...]:
        return ()

    def forward(self, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        """Logits = log p in float64, -inf where p is zero; no features."""
        logits = []
        for span in spans:
            laws = [self._row(span.ids[: end + 1]) for end in range(span.end - span.judged, span.end)]
            logits.append(torch.tensor(laws, dtype=torch.float64).reshape(span.judged, self.vocab_size))
        return Pass(tuple(logits), tuple(torch.zeros(len(span.new), 0) for span in spans))

    def _row(self, prefix: tuple[int, ...]) -> tuple[float, ...]:
        for length in range(min(self.context, len(prefix)), -1, -1):
            found = self.logits.get(prefix[len(prefix) - length :])
            if found is not None:
                return found
        raise AssertionError("the loader saw to it that the empty suffix is known")


def is_table(directory: Path) -> bool:
    return read_json(directory / "config.json").get("model_type") == MODEL_TYPE


def load_table(directory: Path) -> Table:
    """Read a table from its config.json; CheckpointError names the key that is wrong."""
    keys = Keys(read_json(directory / "config.json"), "config.json")
    keys.one_of("model_type", [MODEL_TYPE])
    vocab_size = keys.integer("vocab_size", high=4096)
    context = keys.integer("context", low=0, high=16)
    eos_ids = keys.integers("eos_token_id", (), high=vocab_size - 1)
    max_context = keys.integer("max_position_embeddings", FAR)
    laws = keys.take("laws")
    keys.finish(frozenset())
    if not isinstance(laws, dict) or "" not in laws:
        raise CheckpointError(keys.name("laws"), "must map suffixes to laws, the empty one among them")
    logits = {}
    for name, values in laws.items():
        field = f"{keys.name('laws')}[{name!r}]"
        try:
            suffix = tuple(int(part) for part in name.split(",")) if name else ()
            law = [Fraction(value) for value in values]
        except (TypeError, ValueError, ZeroDivisionError):
            raise CheckpointError(field, "must map ids joined by commas to fractions in strings") from None
        if len(suffix) > context or any(not 0 <= token < vocab_size for token in suffix):
            raise CheckpointError(field, f"must name at most {context} ids below {vocab_size}")
        if len(law) != vocab_size or sum(law) != 1 or min(law) < 0:
            raise CheckpointError(field, f"must hold {vocab_size} probabilities that sum to 1")
        logits[suffix] = tuple(math.log(p) if p else -math.inf for p in law)
    return Table(vocab_size, eos_ids, max_context, context, logits)
