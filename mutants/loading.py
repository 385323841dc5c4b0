"""Faults of loading (K23): tensors and keys that are absent, unknown, guessed or never used."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specqual.contract import checkpoint
from specqual.contract.checkpoint import Checkpoint, Stored
from specqual.contract.config import TargetConfig
from specqual.contract.draft import DraftConfig
from specqual.contract.errors import CheckpointError
from specqual.contract.keys import Keys
from specqual.contract.schema import Schema
from specqual.reference import dflash, drafter, target
from specqual.reference.choice import Array, Scored
from specqual.reference.drafter import BlockDrafter

from .mutant import planted_in
from .pairs import DFLASH2, MARKOV
from .planting import replacing, swapped

sound_account, sound_parse, sound_open_draft, sound_open_target = (
    checkpoint.account,
    checkpoint.parse_draft,
    checkpoint.open_draft,
    checkpoint.open_target,
)


def _known(stored: Mapping[str, Stored], schema: Schema, aliases: Mapping[str, str]) -> dict[str, Stored]:
    return {name: tensor for name, tensor in stored.items() if aliases.get(name, name) in schema}


@replacing("open_draft", drafter)
def m23a(directory: Path, wanted: TargetConfig | None = None) -> Checkpoint[DraftConfig]:
    """Where a tensor of the selector is absent the drafter is loaded as one without a selector."""
    absent: list[str] = []

    def lenient(stored: Mapping[str, Stored], schema: Schema, aliases: Mapping[str, str]) -> dict[str, Stored]:
        have = {aliases.get(name, name) for name in stored}
        absent.extend(name for name in schema if name.startswith("candidate_selector.") and name not in have)
        return sound_account(stored, {name: row for name, row in schema.items() if name not in absent}, aliases)

    with swapped({(checkpoint, "account"): lenient}):
        opened = sound_open_draft(directory, wanted)
    return replace(opened, config=replace(opened.config, selector=None)) if absent else opened


@replacing("account", checkpoint)
def m23b(stored: Mapping[str, Stored], schema: Schema, aliases: Mapping[str, str]) -> dict[str, Stored]:
    """Unknown tensors are ignored."""
    return sound_account(_known(stored, schema, aliases), schema, aliases)


@replacing("scored", BlockDrafter)
def m23c(self: BlockDrafter, hidden: Tensor, logits: Array) -> Scored:
    """The selector or Markov head is loaded and never looked at: slots are scored by their logits alone."""
    return lambda slot, previous: (np.arange(logits.shape[-1]), logits[slot])


@replacing("open_target", target)
def m23d(directory: Path) -> Checkpoint[TargetConfig]:
    """A target without an output head of its own takes its embedding for one."""
    try:
        return sound_open_target(directory)
    except CheckpointError as error:
        if not str(error).startswith("lm_head"):
            raise
    parse = checkpoint.parse_target
    with swapped({(checkpoint, "parse_target"): lambda content: replace(parse(content), tied=True)}):
        return sound_open_target(directory)


@replacing("parse_draft", checkpoint)
def m23h(content: dict[str, Any]) -> DraftConfig:
    """Keys of the block that are missing are guessed: size 5, not causal, the last id as mask, the first two layers."""
    nested = dict(content.get("dflash_config", {}))
    guesses = {
        "block_size": 5,
        "is_causal": False,
        "mask_token_id": content["vocab_size"] - 1,
        "target_layer_ids": [0, 1],
    }
    nested |= {key: value for key, value in guesses.items() if key not in nested and key not in content}
    return sound_parse({**content, "dflash_config": nested})


@replacing("finish", Keys)
def m23i(self: Keys, inert: frozenset[str]) -> None:
    """Unknown keys of a config.json are ignored."""


@replacing("account", checkpoint)
def m23j(stored: Mapping[str, Stored], schema: Schema, aliases: Mapping[str, str]) -> dict[str, Stored]:
    """Norm weights that are absent are taken for ones that are stored elsewhere in the same shape."""
    filled = dict(stored)
    for name, expected in schema.items():
        if name not in filled and name.endswith("norm.weight"):
            twin = next((found for found in stored.values() if found.shape in expected.shapes), None)
            filled |= {name: twin} if twin is not None else {}
    return sound_account(filled, schema, aliases)


@replacing("context_rows", drafter)
def m23k(model: dflash.BlockModel, hidden: tuple[Tensor, ...]) -> Tensor:
    """The weight of the norm over the context rows is loaded and not used."""
    ones = torch.ones_like(model.tensors["hidden_norm.weight"])
    return dflash.context_rows(replace(model, tensors={**model.tensors, "hidden_norm.weight": ones}), hidden)


PLANTED = planted_in(
    "reference",
    ("CKP-2", DFLASH2, (m23a, m23b, m23c, m23k)),
    ("CKP-2", MARKOV, (m23c,)),
    ("CKP-3", DFLASH2, (m23d, m23j)),
    ("CKP-4", DFLASH2, (m23h, m23i)),
)
