"""What the pools of a configuration weigh, known before a weight is read.

One page holds 16 positions of one layer's keys and values and is as large as the widest layer needs, target or drafter.
One slot holds, per recurrent layer, a state, a convolution's history and the log of a span. Weights are not counted.
"""

from dataclasses import dataclass

import torch

from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.draft import DraftConfig

from .arithmetic import wide_dtype
from .deltanet import Inputs
from .pages import Stream, page_bytes


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
    fp8: bool = False,
) -> Footprint:
    """The pools of a decoder with so many `pages`, `samples` at once, cached `prefixes`, at most `longest` drafts; with
    `fp8` the target's keys and values are codes of one byte."""
    cached = list[Stream]()
    if set(target.layer_types) - {LayerType.LINEAR}:
        scales = (1.0, 1.0) if fp8 else None
        cached.append(Stream("target", target.kv_heads, target.head_dim, dtype, scales=scales))
    if draft is not None:
        cached.append(Stream("draft", draft.kv_heads, draft.head_dim, dtype))
    size = page_bytes(cached)
    net, layers = target.delta_net, target.layer_types.count(LayerType.LINEAR)
    if net is None:
        return Footprint(size, pages + 1, 0, 0)
    state = net.value_heads * net.key_dim * net.value_dim
    exact = wide_dtype(dtype).itemsize * (state + (longest + 1) * sum(Inputs.widths(net)))
    history = dtype.itemsize * net.channels * (net.kernel - 1)
    return Footprint(size, pages + 1, layers * (exact + history), samples + min(samples, prefixes))
