"""Which module of a checkpoint is stored in which format, as its own files say it."""

import re
from collections.abc import Mapping
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
    """The per-module map. `exact` names modules outright, and all others are dense; without it a module is dense that a
    pattern of `ignored` fits, else has the format of the first of `targets` that is its name or a pattern for it, else
    `default`."""

    default: Format = Format.DENSE
    exact: tuple[tuple[str, Format], ...] = ()
    ignored: tuple[str, ...] = ()
    targets: tuple[tuple[str, Format], ...] = ()
    kv_scales: bool = False  # FP8 KV cache with one scale per layer for keys and values

    def format_of(self, module: str) -> Format:
        """The format of a linear module, named as in the file without `.weight`."""
        for name, kind in self.exact:
            if name == module:
                return kind
        if self.exact or any(_fits(pattern, module) for pattern in self.ignored):
            return Format.DENSE
        return next((kind for target, kind in self.targets if _names(target, module)), self.default)


def _names(target: str, module: str) -> bool:
    return re.match(target[3:], module) is not None if target.startswith("re:") else target == module


def _fits(pattern: str, module: str) -> bool:
    return _names(pattern, module) or fnmatchcase(module, pattern) or module.startswith(pattern + ".")


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
    _scheme(keys.inner("kv_cache_scheme"), 8, {"tensor": False})
    return True


def _scheme(keys: Keys, bits: int, strategies: Mapping[str, Any]) -> None:
    """Refuse a scheme of compressed-tensors with anything but so many bits and one of these strategies, each with what
    is `dynamic` there; the first is the one that is meant where none is named."""
    keys.one_of("num_bits", [bits])
    for key, only in (("type", "float"), ("symmetric", True)):
        keys.one_of(key, [only], only)
    dynamic = strategies[keys.one_of("strategy", strategies, next(iter(strategies)))]
    keys.one_of("dynamic", [dynamic], dynamic)
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


SCHEMES: Mapping[str, tuple[Format, int, Mapping[str, Any], Mapping[str, Any]]] = {
    "nvfp4-pack-quantized": (Format.NVFP4_PACKED, 4, {"tensor_group": False}, {"tensor_group": "local"}),
    "float-quantized": (Format.FP8, 8, {"tensor": False}, {"tensor": False, "token": True}),
}
"""Of compressed-tensors, by the name of a group's format: ours, bits, and the strategies of weights and activations."""

EVERY = "Linear"  # the class that a group may target, beside names and patterns of modules


def _group(group: Keys, default: Any) -> tuple[tuple[str, ...], Format]:
    """What a group targets, and the format that it is in."""
    kind, bits, *sides = SCHEMES[group.one_of("format", SCHEMES, default)]
    for side, strategies in zip(("weights", "input_activations"), sides, strict=True):
        if group.take(side, None) is not None:
            _scheme(group.inner(side), bits, strategies)
    group.one_of("output_activations", [None], None)
    targets = _patterns(group, "targets")
    if not targets:
        raise CheckpointError(group.name("targets"), "must name at least one module, pattern or class")
    for target in targets:
        if target != EVERY and not target.startswith("re:") and "." not in target and target != "lm_head":
            raise CheckpointError(group.name("targets"), f"{target!r} is neither {EVERY}, nor a module, nor re:PATTERN")
    group.finish(frozenset())
    return targets, kind


def _compressed_tensors(keys: Keys) -> Quantisation:
    """Names come before patterns, and those before the class, each in the order of the alphabet, as in that package."""
    form = keys.one_of("format", [*SCHEMES, "mixed-precision"])
    groups, found = keys.inner("config_groups"), dict[str, Format]()
    for name in groups:
        targets, kind = _group(groups.inner(name), None if form == "mixed-precision" else form)
        found |= dict.fromkeys(targets, kind)
    if not found:
        raise CheckpointError(keys.name("config_groups"), "must hold at least one group")
    default = found.pop(EVERY, Format.DENSE)
    ordered = sorted(found.items(), key=lambda item: (item[0].startswith("re:"), item[0]))
    for key in ("transform_config", "sparsity_config"):  # both would change what a weight means
        keys.one_of(key, [{}], {})
    ignored, kv_scales = _patterns(keys, "ignore"), _fp8_cache(keys)
    keys.finish(INERT)
    return Quantisation(default, ignored=ignored, kv_scales=kv_scales, targets=tuple(ordered))


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
