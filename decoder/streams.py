"""What the layers of a target and of a drafter keep in the page pool."""

from collections.abc import Callable

import torch

from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.draft import DraftConfig

from .pages import Stream

Scales = tuple[float, float] | None


def target_streams(
    config: TargetConfig, dtype: torch.dtype, scales: Callable[[int], Scales] = lambda layer: None
) -> tuple[Stream, ...]:
    """One for each layer with attention; `scales` of its keys and values in an FP8 cache, by layer."""
    return tuple(
        Stream(
            f"target.{layer}",
            config.kv_heads,
            config.head_dim,
            dtype,
            config.window if kind is LayerType.SLIDING else None,
            scales(layer),
        )
        for layer, kind in enumerate(config.layer_types)
        if kind is not LayerType.LINEAR
    )


def draft_streams(config: DraftConfig, dtype: torch.dtype) -> tuple[Stream, ...]:
    """One for each layer: the context that it has taken in."""
    windows = (config.window if kind is LayerType.SLIDING else None for kind in config.layer_types)
    return tuple(
        Stream(f"draft.{i}", config.kv_heads, config.head_dim, dtype, window) for i, window in enumerate(windows)
    )
