"""What the pools of a configuration weigh, known before a weight is read.

One page holds 16 positions of one layer's keys and values and is as large as the widest layer needs, target or drafter.
One slot holds, per recurrent layer, a state, a convolution's history and the log of a span. Weights are not counted.
"""

from dataclasses import dataclass

import torch

from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.draft import DraftConfig

from .arithmetic import wide_dtype
from .pages import PAGE


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of the two pools; page 0, which belongs to nobody, is counted."""

    page_bytes: int
    pages: int
    slot_bytes: int
    slots: int

    @property
    def bytes(self) -> int:
        return self.page_bytes * self.pages + self.slot_bytes * self.slots


def footprint(
    target: TargetConfig,
    draft: DraftConfig | None,
    dtype: torch.dtype,
    *,
    pages: int,
    samples: int,
    prefixes: int,
    longest: int,
) -> Footprint:
    """The pools of a decoder with so many `pages`, `samples` at once, cached `prefixes`, at most `longest` drafts."""
    cached = [target.kv_heads * target.head_dim] if set(target.layer_types) - {LayerType.LINEAR} else []
    cached += [draft.kv_heads * draft.head_dim] if draft is not None else []
    page_bytes = 2 * PAGE * max(cached, default=0) * dtype.itemsize
    net, layers = target.delta_net, target.layer_types.count(LayerType.LINEAR)
    if net is None:
        return Footprint(page_bytes, pages + 1, 0, 0)
    state = net.value_heads * net.key_dim * net.value_dim
    logged = net.value_heads * (net.key_dim + net.value_dim + 2)  # key, value, decay, beta of one token
    exact = wide_dtype(dtype).itemsize * (state + (longest + 1) * logged)
    inputs = dtype.itemsize * net.channels * (net.kernel - 1 + longest + 1)
    return Footprint(page_bytes, pages + 1, layers * (exact + inputs), samples + min(samples, prefixes))
