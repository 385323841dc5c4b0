"""Quantised copies of a checkpoint, made on the spot: every linear module in one of the published layouts."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from specqual import fixtures
from specqual.contract import Request, Rule
from specqual.contract.checkpoint import open_draft, open_target
from specqual.contract.config import LayerType
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Format
from specqual.contract.schema import draft_linears, target_linears
from specqual.reference.fp8 import LARGEST
from specqual.reference.target import load_target

from .definitions import stored
from .drive import NotOffered, serve
from .lab import Lab
from .mutate import Tensors, changed

NVFP4_GROUP = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
SECTIONS: dict[Format, dict[str, Any]] = {
    Format.FP8: {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
    Format.NVFP4: {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
    Format.NVFP4_PACKED: {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**NVFP4_GROUP, "dynamic": False}}},
        "ignore": ["lm_head"],
    },
}
CACHE = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
TINY = "nano/dense"
SMALL = 256  # tokens of vocabulary up to which a target is its own tiny one
LARGE = 2**27  # bytes of a drafter


def tiny(lab: Lab) -> Path:
    """The target to quantise: the run's own if it is small and dense, else a tiny one."""
    own = lab.run.setup.target
    try:
        opened = open_target(own)
    except CheckpointError:
        return fixtures.path(TINY)
    dense = all(opened.quantisation.format_of(name) is Format.DENSE for name in target_linears(opened.config))
    return own if dense and opened.config.vocab_size <= SMALL else fixtures.path(TINY)


@contextmanager
def quantised_target(directory: Path, kind: Format) -> Iterator[Path]:
    """A copy of a dense target in a format, its head left dense; with FP8 comes an FP8 cache, a scale for each side."""
    opened, section = open_target(directory), SECTIONS[kind]
    names, scales = [name for name in target_linears(opened.config) if name != "lm_head"], dict[str, float]()
    if kind is Format.FP8:
        section = section | {"kv_cache_scheme": CACHE}
        seen = load_target(directory).forward(range(2, min(66, opened.config.vocab_size))).tensors
        for index, layer in enumerate(opened.config.layer_types):
            for side in ("key", "value") if layer is not LayerType.LINEAR else ():
                name = f"{opened.config.prefix}layers.{index}.self_attn.{side[0]}_proj.{side[0]}_scale"
                scales[name] = float(seen[f"target.{index}.{side}"].abs().max()) / LARGEST
    with _copied(directory, kind, names, section, scales) as copy:
        yield copy


@contextmanager
def quantised_draft(directory: Path, kind: Format) -> Iterator[Path]:
    """A copy of a dense drafter in a format; NotOffered for one that is too large to be quantised on the spot."""
    if sum(path.stat().st_size for path in directory.glob("*.safetensors")) > LARGE:
        raise NotOffered("the drafter is too large to be quantised on the spot")
    with _copied(directory, kind, draft_linears(open_draft(directory).config), SECTIONS[kind], {}) as copy:
        yield copy


@contextmanager
def _copied(
    directory: Path, kind: Format, names: Iterable[str], section: dict[str, Any], scales: dict[str, float]
) -> Iterator[Path]:
    def tensors(content: Tensors) -> None:
        for name in names:
            weight = content.pop(f"{name}.weight").double()
            content.update({f"{name}.{part}": side for part, side in stored(kind, weight, weight.dtype).parts.items()})
        content.update({name: torch.tensor(scale) for name, scale in scales.items()})

    with changed(directory, tensors=tensors, config=lambda keys: keys.update(quantization_config=section)) as copy:
        yield copy


@contextmanager
def beside(lab: Lab, **changes: Any) -> Iterator[Lab]:
    """A laboratory for another checkpoint, in float64 where the decoder has it, else in its own dtype; NotOffered,
    with the decoder's reason, if it does not serve it."""
    reasons = list[Exception]()
    for dtype in dict.fromkeys(("float64", lab.run.setup.dtype)):
        other = lab.beside(dtype=dtype, **changes)
        try:
            serve(other.decoder, [Request(prompt=(1, 2), max_tokens=4)])  # some load what they cannot run
        except Exception as error:
            reasons.append(error)
            other.renew()
            continue
        try:
            yield other
        finally:
            other.renew()
        return
    raise NotOffered(f"the decoder does not serve it: {reasons[-1]}") from reasons[-1]


@contextmanager
def quantised(lab: Lab, kind: Format) -> Iterator[Lab]:
    """A laboratory for a tiny quantised target without a drafter."""
    alone = {"draft": None, "draft_length": None, "rule": Rule.NONE}
    with quantised_target(tiny(lab), kind) as copy, beside(lab, target=copy, **alone) as other:
        yield other
