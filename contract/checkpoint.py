"""Checkpoint directories: opened without executing anything, every tensor and key accounted for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors import SafetensorError, safe_open

from .config import TargetConfig, parse_target
from .draft import DraftConfig, parse_draft
from .errors import CheckpointError
from .keys import read_json
from .quantisation import Quantisation, parse_quantisation
from .schema import DRAFT_ALIASES, Schema, draft_schema, target_aliases, target_schema

C = TypeVar("C", TargetConfig, DraftConfig)

# Parts of published targets that a text decoder leaves out, by architecture and name.
LEFT_OUT = {"qwen3_5_text": ("mtp.", "model.visual.", "visual.")}


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a tensor lies: nothing of its content has been read."""

    file: Path
    name: str  # as in the file
    shape: tuple[int, ...]
    dtype: str  # safetensors' name: F32, BF16, F8_E4M3, U8 ...


@dataclass(frozen=True, slots=True)
class Checkpoint(Generic[C]):
    """An accounted checkpoint: its configuration, its per-module formats and its tensors by schema name.

    `left_out` names the stored tensors that a text decoder does not use.
    """

    directory: Path
    config: C
    quantisation: Quantisation
    tensors: Mapping[str, Stored]
    left_out: tuple[str, ...] = ()

    def read(self, name: str) -> torch.Tensor:
        """Read one tensor in its stored dtype from its memory-mapped file; KeyError if the schema has no such one."""
        stored = self.tensors[name]
        with _open(stored.file) as file:
            tensor: torch.Tensor = file.get_tensor(stored.name)
            return tensor


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")  # maps the file; the header is checked against the file's size
    except (SafetensorError, OSError) as error:
        raise CheckpointError(path.name, f"is not a readable safetensors file ({error})") from None


def _files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return [directory / "model.safetensors"]
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index.name}: weight_map", "must map tensor names to file names")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{index.name}: weight_map", f"names a file outside the directory, {name!r}")
    return [directory / name for name in names]


def _stored(directory: Path, prefix: str) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for path in _files(directory):
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is not a mapping
                if not name.startswith(prefix):
                    continue
                part = file.get_slice(name)
                short = name.removeprefix(prefix)
                if short in found:
                    raise CheckpointError(short, f"is stored twice, in {found[short].file.name} and {path.name}")
                found[short] = Stored(path, name, tuple(part.get_shape()), part.get_dtype())
    return found


def account(stored: Mapping[str, Stored], schema: Schema, aliases: Mapping[str, str]) -> dict[str, Stored]:
    """Match stored tensors with a schema; the first missing, extra or misshapen one is a CheckpointError naming it."""
    tensors: dict[str, Stored] = {}
    for name, tensor in stored.items():
        known = aliases.get(name, name)
        if known not in schema:
            raise CheckpointError(name, "is not a tensor of this architecture and configuration")
        if known in tensors:
            raise CheckpointError(name, f"is stored twice, also as {tensors[known].name}")
        expected = schema[known]
        if tensor.shape not in expected.shapes:
            shapes = " or ".join(str(list(shape)) for shape in expected.shapes)
            raise CheckpointError(name, f"has shape {list(tensor.shape)}, expected {shapes}")
        if tensor.dtype not in expected.dtypes:
            raise CheckpointError(name, f"has dtype {tensor.dtype}, expected {' or '.join(sorted(expected.dtypes))}")
        tensors[known] = tensor
    for name, expected in schema.items():
        if name not in tensors and not expected.optional:
            raise CheckpointError(name, "is missing")
    return tensors


def _hf_quant(directory: Path) -> dict[str, Any] | None:
    path = directory / "hf_quant_config.json"
    return read_json(path) if path.exists() else None


def read_target(directory: Path) -> tuple[TargetConfig, Quantisation]:
    """What the files beside a target's weights say; CheckpointError names the file or key that is wrong."""
    content = read_json(directory / "config.json")
    return parse_target(content), parse_quantisation(content, _hf_quant(directory))


def read_draft(directory: Path, target: TargetConfig | None = None) -> tuple[DraftConfig, Quantisation]:
    """What the files beside a drafter's weights say and, given its target, whether the two fit; errors as above."""
    content = read_json(directory / "config.json")
    config = parse_draft(content)
    if target is not None:
        fit(config, target)
    return config, parse_quantisation(content, _hf_quant(directory))


def open_target(directory: Path | str, *, prefix: str = "") -> Checkpoint[TargetConfig]:
    """Open a target checkpoint (config.json and safetensors) with strict accounting.

    `prefix` keeps only tensors whose name starts with it, and strips it. Raises CheckpointError naming the file, key or
    tensor that is missing, extra, misshapen or unknown. Reads headers only.
    """
    directory = Path(directory)
    config, quantisation = read_target(directory)
    stored = _stored(directory, prefix)
    left_out = tuple(name for name in stored if name.startswith(LEFT_OUT.get(config.model_type, ())))
    kept = {name: tensor for name, tensor in stored.items() if name not in set(left_out)}
    tensors = account(kept, target_schema(config, quantisation), target_aliases(config))
    return Checkpoint(directory, config, quantisation, tensors, left_out)


def fit(draft: DraftConfig, target: TargetConfig) -> None:
    """Raise CheckpointError, naming the field, unless a drafter has the sizes of this target.

    Nothing in a configuration says which target a drafter was trained for; another of the same sizes is not noticed.
    """
    for key, mine, theirs in (
        ("vocab_size", draft.vocab_size, target.vocab_size),
        ("hidden_size", draft.hidden_size, target.hidden_size),
        ("num_target_layers", draft.target_layers, target.layers),
    ):
        if mine != theirs:
            raise CheckpointError(f"config.json: {key}", f"is {mine}, but the target's is {theirs}")


def open_draft(
    directory: Path | str, target: TargetConfig | None = None, *, prefix: str = ""
) -> Checkpoint[DraftConfig]:
    """Open a DFlash-family drafter with strict accounting and, given its target, check that the two fit.

    Raises CheckpointError as open_target does.
    """
    directory = Path(directory)
    config, quantisation = read_draft(directory, target)
    schema = draft_schema(config, quantisation)
    return Checkpoint(directory, config, quantisation, account(_stored(directory, prefix), schema, DRAFT_ALIASES))
