"""Transformers on the same synthetic weights, decoded to bfloat16: greedy decoding with its key-value cache.

It takes flash-linear-attention's kernels where the package `fla` can be imported, and says whether it did.
"""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import TargetConfig
from specqual.decoder.formats import read_weight

from .clock import Clock, spread
from .synthetic import synthetic_target


def model_of(directory: Path, device: torch.device) -> Any:
    """The text model of a configuration, with the weights that the decoder has."""
    model = empty(directory, device)
    checkpoint = synthetic_target(directory, device)
    with torch.no_grad():
        for parameter, source in sources(model, checkpoint):
            parameter.copy_(tensor_of(checkpoint, source).view_as(parameter))
    return model


def empty(directory: Path, device: torch.device) -> Any:
    """The same with weights of its own making."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(directory)
    config = getattr(config, "text_config", config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def sources(model: torch.nn.Module, checkpoint: Checkpoint[TargetConfig]) -> Iterator[tuple[torch.nn.Parameter, str]]:
    """Each parameter and the name of its tensor; ValueError names one that the checkpoint does not have."""
    prefix = checkpoint.config.prefix
    for name, parameter in model.named_parameters():
        source = prefix + name.removeprefix("model.") if name.startswith("model.") else name
        if source not in checkpoint.tensors:
            raise ValueError(f"{name}: a parameter of the Transformers model that the checkpoint does not have")
        yield parameter, source


def tensor_of(checkpoint: Checkpoint[TargetConfig], name: str) -> Tensor:
    """A tensor as it stands, or the weight that a quantised module stands for."""
    module = name.removesuffix(".weight")
    if f"{module}.weight_scale" in checkpoint.tensors:
        return read_weight(checkpoint, module, torch.bfloat16)
    return checkpoint.read(name)


def measure(directory: Path, clock: Clock, context: int, tokens: int) -> dict[str, Any]:
    """Seconds of one decoded token at batch 1 behind a prompt of `context` tokens, with everything that says how."""
    model = model_of(directory, clock.device)
    generator = torch.Generator(clock.device).manual_seed(0)
    prompt = torch.randint(model.config.vocab_size, (1, context), device=clock.device, generator=generator)
    with torch.inference_mode():
        first = model(prompt, use_cache=True, logits_to_keep=1)
        if not bool(torch.isfinite(first.logits).all()):
            raise ValueError("logits: not finite, so the weights are out of scale")
        token = first.logits[:, -1:].argmax(-1)

        def one() -> None:
            found = model(token, past_key_values=first.past_key_values, use_cache=True)
            token.copy_(found.logits[:, -1:].argmax(-1))

        seconds = clock.compare({"transformers": one}, tokens)["transformers"]
    return {
        "context": context,
        "tokens": tokens,
        "seconds": seconds,
        "step": spread(seconds),
        "dtype": "bfloat16",
        "versions": {name: version_of(name) for name in ("transformers", "flash-linear-attention", "fla-core")},
        "fla": find_spec("fla") is not None,
        "causal_conv1d": find_spec("causal_conv1d") is not None,
    }


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
