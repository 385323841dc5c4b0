"""From a Setup to a configured reference decoder and its claims."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from specqual import __version__
from specqual.contract import (
    Claims,
    DraftFormat,
    Greedy,
    Limits,
    Method,
    Request,
    Rule,
    Sampling,
    SeedContract,
    Setup,
    Unsupported,
)
from specqual.contract.keys import read_json
from specqual.contract.quantisation import Format, Quantisation, parse_quantisation
from specqual.contract.schema import target_linears

from .decoder import ReferenceDecoder
from .drafter import Drafter, load_drafter
from .ngram import NgramDrafter
from .table import TableTarget
from .target import Target, TransformerTarget, load_target
from .text import load_text

RULES = (Rule.NONE, Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH)
DTYPES = ("float64", "float32")
LOOKED_UP = 4  # K of prompt lookup where the setup names none
MAX_BATCH = 256  # nothing is shared between requests, so any number will do


def make(setup: Setup) -> ReferenceDecoder:
    """Build the decoder that a Setup asks for.

    Options: `ngram` (longest suffix to look up; instead of a drafter), `device`, `quantise_activations`, `draft_format`
    ("nvfp4" quantises a drafter's dense modules when they are loaded). A draft length without a drafter makes room for
    scripted drafts; Rule.NONE switches speculation off. Raises ValueError naming an unknown option or value,
    CheckpointError for a bad checkpoint, Unsupported for a rule without an implementation.
    """
    ngram, device, quantised, draft_format = _options(setup.options)
    dtype = setup.dtype or "float64"
    if dtype not in DTYPES:
        raise ValueError(f"dtype: must be {' or '.join(DTYPES)}, got {dtype!r}")
    if setup.rule not in RULES:
        raise Unsupported(f"rule: the reference decoder has no {setup.rule} verification")
    if setup.draft is not None and ngram is not None:
        raise ValueError("ngram: excludes a draft checkpoint")
    number = getattr(torch, dtype)
    target = load_target(setup.target, dtype=number, device=device, quantise_activations=quantised)
    drafter: Drafter | None = None
    if setup.rule is not Rule.NONE and setup.draft is not None:
        drafter = load_drafter(setup.draft, target, dtype=number, device=device, draft_format=draft_format)
    elif setup.rule is not Rule.NONE and ngram is not None:
        drafter = NgramDrafter(LOOKED_UP if setup.draft_length is None else setup.draft_length, ngram)
    longest = 0 if setup.rule is Rule.NONE else _length(setup.draft_length, drafter)
    text = load_text(setup.target)
    rule = setup.rule if longest else Rule.NONE
    exact = isinstance(target, TableTarget)
    claims = Claims(
        engine="specqual.reference",
        version=__version__,
        rule=rule,
        method=drafter.method if drafter is not None else Method.SCRIPTED if longest else Method.NONE,
        greedy=Greedy(bitwise=exact),  # the length of a span changes the shape of matrix products, so their rounding
        sampling=_honoured(text is not None),
        seed=SeedContract.ALWAYS if rule in (Rule.NONE, Rule.SAMPLER_MATCH) else SeedContract.EQUAL_DRAFT_LENGTHS,
        limits=Limits(target.vocab_size, target.max_context, longest, MAX_BATCH, target.eos_ids),
        dtype=dtype,
        draft_format=DraftFormat.STORED if setup.draft is None or drafter is None else draft_format,
        device=device,
        threads=torch.get_num_threads(),
        **_formats(setup.target, target, quantised),
    )
    return ReferenceDecoder(target, drafter, claims, text)


def _options(options: Mapping[str, Any]) -> tuple[int | None, str, bool, DraftFormat]:
    known = {"ngram": None, "device": "cpu", "quantise_activations": False, "draft_format": DraftFormat.STORED}
    for name in options:
        if name not in known:
            raise ValueError(f"{name}: unknown option; there are {', '.join(known)}")
    ngram, device, quantised, draft_format = ({**known, **options}[name] for name in known)
    if ngram is not None:
        ngram = _positive("ngram", ngram)
    if quantised not in (False, True, "false", "true"):
        raise ValueError(f"quantise_activations: must be true or false, got {quantised!r}")
    try:
        torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device: must name a torch device, got {device!r}") from None
    if draft_format not in list(DraftFormat):
        raise ValueError(f"draft_format: must be {' or '.join(DraftFormat)}, got {draft_format!r}")
    return ngram, str(device), quantised in (True, "true"), DraftFormat(draft_format)


def _positive(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if isinstance(value, bool | float) or number < 1:
        raise ValueError(f"{name}: must be a positive integer, got {value!r}")
    return number


def _length(asked: int | None, drafter: Drafter | None) -> int:
    if asked is not None and asked < 0:
        raise ValueError(f"draft_length: must be at least 0, got {asked}")
    longest = 0 if drafter is None else drafter.draft_length
    if drafter is not None and asked is not None and asked > longest:
        raise ValueError(f"draft_length: this drafter makes at most {longest} drafts, got {asked}")
    return longest if asked is None else asked


def _honoured(text: bool) -> frozenset[str]:
    names = {field.name for kind in (Sampling, Request) for field in fields(kind)} - {"sampling", "prompt"}
    return frozenset(names if text else names - {"stop_strings"})


def _formats(directory: Path, target: Target, quantised: bool) -> dict[str, str]:
    if not isinstance(target, TransformerTarget):
        return {}
    hf_quant = directory / "hf_quant_config.json"
    quantisation = parse_quantisation(
        read_json(directory / "config.json"), read_json(hf_quant) if hf_quant.exists() else None
    )
    kinds = {_weight(quantisation, name, quantised) for name in target_linears(target.config)} - {"dense"}
    weights = kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "dense"
    activations = "as weights" if quantised and weights != "dense" else "dense"
    return {
        "weight_format": weights,
        "activation_format": activations,
        "kv_format": "fp8" if quantisation.kv_scales else "dense",
    }


def _weight(quantisation: Quantisation, name: str, quantised: bool) -> str:
    kind = quantisation.format_of(name)
    if kind in (Format.NVFP4, Format.NVFP4_PACKED):
        return "nvfp4-w4a4" if quantised else "nvfp4-w4a16"
    return str(kind)
