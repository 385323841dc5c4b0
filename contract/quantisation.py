"""Which module of a checkpoint is stored in which format, as its own files say it."""

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from .errors import CheckpointError


class Format(StrEnum):
    """How a linear layer's weight is stored (facts in docs/formats.md)."""

    DENSE = "dense"
    FP8 = "fp8"  # e4m3 with one float32 scale
    NVFP4 = "nvfp4"  # ModelOpt: scales multiply
    NVFP4_PACKED = "nvfp4-packed"  # compressed-tensors: global scales divide


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The per-module map. `exact` names modules outright; else `default` holds, unless a pattern of `ignored` fits."""

    default: Format = Format.DENSE
    exact: tuple[tuple[str, Format], ...] = ()
    ignored: tuple[str, ...] = ()
    kv_scales: bool = False  # FP8 KV cache with one scale per layer for keys and values

    def format_of(self, module: str) -> Format:
        """The format of a linear module, named as in the file without `.weight`."""
        for name, kind in self.exact:
            if name == module:
                return kind
        if self.exact or any(_fits(pattern, module) for pattern in self.ignored):
            return Format.DENSE
        return self.default


def _fits(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    return pattern == module or fnmatchcase(module, pattern) or module.startswith(pattern + ".")


def _algorithm(name: Any, field: str) -> Format:
    known = {"NVFP4": Format.NVFP4, "FP8": Format.FP8, "W4A16_NVFP4": Format.NVFP4, "NVFP4_AWQ": None, None: None}
    kind = known.get(name if isinstance(name, str) else None)
    if kind is None:
        raise CheckpointError(field, f"must be NVFP4, W4A16_NVFP4 or FP8, got {name!r}")
    return kind


def _strings(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CheckpointError(field, f"must be a list of strings, got {value!r}")
    for item in value:
        if item.startswith("re:"):
            try:
                re.compile(item[3:])
            except re.error as error:
                raise CheckpointError(field, f"{item!r} is not a regular expression ({error})") from None
    return tuple(value)


def _modelopt(content: dict[str, Any], field: str) -> Quantisation:
    # `quantization` is hf_quant_config.json's own nesting; config.json holds the same keys flat.
    content = content.get("quantization", content)
    if not isinstance(content, dict):
        raise CheckpointError(f"{field}.quantization", "must be an object")
    if content.get("group_size", 16) != 16:
        raise CheckpointError(f"{field}.group_size", f"must be 16, got {content['group_size']!r}")
    kv = content.get("kv_cache_quant_algo") or content.get("kv_cache_scheme")
    algorithm = content.get("quant_algo")
    if algorithm == "MIXED_PRECISION":
        layers = content.get("quantized_layers")
        if not isinstance(layers, dict):
            raise CheckpointError(f"{field}.quantized_layers", "must map module names to formats")
        exact = []
        for name, entry in layers.items():
            if not isinstance(entry, dict):
                raise CheckpointError(f"{field}.quantized_layers.{name}", "must be an object")
            kind = _algorithm(entry.get("quant_algo"), f"{field}.quantized_layers.{name}.quant_algo")
            exact.append((name, kind))
        return Quantisation(exact=tuple(exact), kv_scales=bool(kv))
    ignored = content.get("exclude_modules", content.get("ignore", []))
    return Quantisation(
        _algorithm(algorithm, f"{field}.quant_algo"),
        ignored=_strings(ignored, f"{field}.ignore"),
        kv_scales=bool(kv),
    )


def _compressed_tensors(content: dict[str, Any], field: str) -> Quantisation:
    if content.get("format") != "nvfp4-pack-quantized":
        raise CheckpointError(f"{field}.format", f"must be 'nvfp4-pack-quantized', got {content.get('format')!r}")
    groups = content.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise CheckpointError(f"{field}.config_groups", "must hold exactly one group")
    group = next(iter(groups.values()))
    targets = group.get("targets") if isinstance(group, dict) else None
    if targets != ["Linear"]:
        raise CheckpointError(f"{field}.config_groups", f"must target ['Linear'], got {targets!r}")
    ignored = _strings(content.get("ignore", []), f"{field}.ignore")
    return Quantisation(Format.NVFP4_PACKED, ignored=ignored, kv_scales=bool(content.get("kv_cache_scheme")))


def parse_quantisation(config: dict[str, Any], hf_quant: dict[str, Any] | None) -> Quantisation:
    """Read the per-module map from `quantization_config` or, where that is absent, from hf_quant_config.json."""
    field, content = "config.json: quantization_config", config.get("quantization_config")
    if content is None:
        if hf_quant is None:
            return Quantisation()
        return _modelopt(hf_quant, "hf_quant_config.json")
    if not isinstance(content, dict):
        raise CheckpointError(field, "must be an object")
    method = content.get("quant_method")
    if method == "modelopt":
        return _modelopt(content, field)
    if method == "compressed-tensors":
        return _compressed_tensors(content, field)
    raise CheckpointError(f"{field}.quant_method", f"must be 'modelopt' or 'compressed-tensors', got {method!r}")
