"""Which module of a checkpoint is stored in which format, as its own files say it."""

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from .errors import CheckpointError
from .keys import Keys


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


ALGORITHMS = {"NVFP4": Format.NVFP4, "W4A16_NVFP4": Format.NVFP4, "FP8": Format.FP8}

# Keys that say who wrote the file, or say once more what the algorithm's or the format's name has said.
INERT = frozenset("quant_method producer config_groups version quantization_status global_compression_ratio".split())
INERT_SCHEME = frozenset("observer observer_kwargs actorder block_structure scale_dtype zp_dtype".split())


def _algorithm(keys: Keys) -> Format:
    """The format that `quant_algo` names; whatever comes in blocks comes in blocks of 16. Accounts for all keys."""
    kind = ALGORITHMS[keys.one_of("quant_algo", ALGORITHMS)]
    keys.one_of("group_size", [16], 16)
    keys.finish(INERT)
    return kind


def _fp8_cache(keys: Keys) -> bool:
    """Whether keys and values are kept in FP8 with static scales, under either name of the setting."""
    named = keys.take("kv_cache_quant_algo", None) is not None
    if named:
        keys.one_of("kv_cache_quant_algo", ["FP8"])
    if keys.take("kv_cache_scheme", None) is None:
        return named
    _scheme(keys.inner("kv_cache_scheme"), bits=8, strategy="tensor", dynamic=False)
    return True


def _scheme(keys: Keys, *, bits: int, strategy: str, dynamic: Any) -> None:
    """Refuse a scheme of compressed-tensors that says anything but these."""
    keys.one_of("num_bits", [bits])
    for key, only in (("type", "float"), ("symmetric", True), ("strategy", strategy), ("dynamic", dynamic)):
        keys.one_of(key, [only], only)
    keys.one_of("group_size", [16], 16)
    keys.finish(INERT_SCHEME)


def _patterns(keys: Keys, key: str) -> tuple[str, ...]:
    value = keys.take(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CheckpointError(keys.name(key), f"must be a list of strings, got {value!r}")
    for item in value:
        if item.startswith("re:"):
            try:
                re.compile(item[3:])
            except (re.error, OverflowError, RecursionError) as error:
                raise CheckpointError(keys.name(key), f"{item[:60]!r} is not a regular expression ({error})") from None
    return tuple(value)


def _modelopt(keys: Keys) -> Quantisation:
    kv_scales = _fp8_cache(keys)
    ignored = _patterns(keys, "exclude_modules") + _patterns(keys, "ignore")
    if keys.take("quant_algo") == "MIXED_PRECISION":
        layers = keys.inner("quantized_layers")
        exact = tuple((name, _algorithm(layers.inner(name))) for name in layers)
        keys.finish(INERT)
        return Quantisation(exact=exact, kv_scales=kv_scales)
    return Quantisation(_algorithm(keys), ignored=ignored, kv_scales=kv_scales)


def _compressed_tensors(keys: Keys) -> Quantisation:
    keys.one_of("format", ["nvfp4-pack-quantized"])
    groups = keys.inner("config_groups")
    names = list(groups)
    if len(names) != 1:
        raise CheckpointError(keys.name("config_groups"), "must hold exactly one group")
    group = groups.inner(names[0])
    group.one_of("targets", [["Linear"]])
    group.one_of("format", ["nvfp4-pack-quantized"], "nvfp4-pack-quantized")
    group.one_of("output_activations", [None], None)
    for side, dynamic in (("weights", False), ("input_activations", "local")):
        if group.take(side, None) is not None:
            _scheme(group.inner(side), bits=4, strategy="tensor_group", dynamic=dynamic)
    group.finish(frozenset())
    for key in ("transform_config", "sparsity_config"):  # both would change what a weight means
        keys.one_of(key, [{}], {})
    ignored, kv_scales = _patterns(keys, "ignore"), _fp8_cache(keys)
    keys.finish(INERT)
    return Quantisation(Format.NVFP4_PACKED, ignored=ignored, kv_scales=kv_scales)


def parse_quantisation(config: dict[str, Any], hf_quant: dict[str, Any] | None) -> Quantisation:
    """Read the per-module map from `quantization_config` or, where that is absent, from hf_quant_config.json."""
    found = Keys(config, "config.json")
    if found.take("quantization_config", None) is None:
        if hf_quant is None:
            return Quantisation()
        # Its one object holds the same keys as the other file has beside `quant_method`.
        outer = Keys(hf_quant, "hf_quant_config.json")
        inner = outer.inner("quantization")
        outer.finish(INERT)
        return _modelopt(inner)
    keys = found.inner("quantization_config")
    if keys.one_of("quant_method", ["modelopt", "compressed-tensors"]) == "modelopt":
        return _modelopt(keys)
    return _compressed_tensors(keys)
