"""Table targets: exact rational laws read from a config.json, for proofs with zero tolerance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specqual.contract.errors import CheckpointError
from specqual.contract.keys import Keys, read_json

from .forward import Forward, check_ids

MODEL_TYPE = "specqual_table"
LONGEST = 2**20  # tokens; a table has no positions, so any limit will do where the file states none


@dataclass(frozen=True, slots=True)
class TableTarget:
    """The next token's law is that of the longest suffix of the prefix, at most `context` tokens, with an entry.

    `laws` maps suffixes to V probabilities each; the empty suffix is always there.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    max_context: int
    context: int
    laws: Mapping[tuple[int, ...], tuple[Fraction, ...]]

    def law(self, ids: Sequence[int]) -> npt.NDArray[Any]:
        """The exact law after the prefix `ids` (possibly empty): an object array [V] of Fraction."""
        prefix = tuple(ids)
        for length in range(min(self.context, len(prefix)), -1, -1):
            found = self.laws.get(prefix[len(prefix) - length :])
            if found is not None:
                return np.array(found, dtype=object)
        raise AssertionError("the loader saw to it that the empty suffix has a law")

    def forward(self, ids: Sequence[int]) -> Forward:
        """Logits [T, V] = log p in float64, -inf where p is zero; no hidden states and no cached state."""
        check_ids(ids, self.vocab_size)
        rows = [[log(p) if p else -np.inf for p in self.law(ids[: t + 1])] for t in range(len(ids))]
        return Forward(torch.tensor(rows, dtype=torch.float64).reshape(len(ids), self.vocab_size), (), {}, {})

    def embed(self, ids: Sequence[int]) -> Tensor:
        """A table's tokens are embedded in no dimensions: [T, 0]."""
        check_ids(ids, self.vocab_size)
        return torch.zeros(len(ids), 0, dtype=torch.float64)

    def head(self, hidden: Tensor) -> Tensor:
        raise TypeError("a table target has no hidden states, so its head cannot be applied to any")


def _suffix(name: str, field: str, vocab_size: int, context: int) -> tuple[int, ...]:
    parts = name.split(",") if name else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise CheckpointError(field, "must be token ids joined by commas")
    suffix = tuple(int(part) for part in parts)
    if ",".join(map(str, suffix)) != name or any(token >= vocab_size for token in suffix):
        raise CheckpointError(field, f"must hold ids below {vocab_size}, written plainly")
    if len(suffix) > context:
        raise CheckpointError(field, f"is longer than the context, {context}")
    return suffix


def _probability(value: Any, field: str) -> Fraction:
    try:
        if not isinstance(value, str) or len(value) > 100 or "e" in value.lower():
            raise ValueError
        probability = Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise CheckpointError(field, f"must be a fraction in a string such as '1/3', got {value!r}") from None
    if probability < 0:
        raise CheckpointError(field, f"must not be negative, got {value!r}")
    return probability


def _law(values: Any, field: str, vocab_size: int) -> tuple[Fraction, ...]:
    if not isinstance(values, list) or len(values) != vocab_size:
        raise CheckpointError(field, f"must list {vocab_size} probabilities")
    law = tuple(_probability(value, f"{field}[{token}]") for token, value in enumerate(values))
    if sum(law) != 1:
        raise CheckpointError(field, f"must sum to 1, got {sum(law)}")
    return law


def is_table(directory: Path | str) -> bool:
    """Whether a directory's config.json describes a table target; CheckpointError if there is no readable one."""
    return read_json(Path(directory) / "config.json").get("model_type") == MODEL_TYPE


def load_table(directory: Path | str) -> TableTarget:
    """Load a table target; CheckpointError names the key of its config.json that is wrong.

    Keys: model_type, vocab_size, context, laws {"": [...], "3": [...], "0,3": [...]} with V fractions in strings each,
    and, if wanted, eos_token_id and max_position_embeddings.
    """
    where = "config.json"
    keys = Keys(read_json(Path(directory) / where), where)
    keys.one_of("model_type", [MODEL_TYPE])
    vocab_size = keys.integer("vocab_size", high=4096)
    context = keys.integer("context", low=0, high=16)
    eos_ids = keys.integers("eos_token_id", (), high=vocab_size - 1)
    max_context = keys.integer("max_position_embeddings", LONGEST)
    table = keys.take("laws")
    keys.finish(frozenset())
    if not isinstance(table, dict) or "" not in table:
        raise CheckpointError(keys.name("laws"), "must map suffixes to laws, the empty suffix among them")
    laws = {}
    for name, values in table.items():
        field = f"{keys.name('laws')}[{name!r}]"
        laws[_suffix(name, field, vocab_size, context)] = _law(values, field, vocab_size)
    return TableTarget(vocab_size, eos_ids, max_context, context, laws)
