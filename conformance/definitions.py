"""What kernels must compute, in any dtype: stored weights, attention, and operations made of spans."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specqual.contract.kernels import Seen, Weight
from specqual.contract.quantisation import Format
from specqual.reference.attention import attention
from specqual.reference.fp8 import dequantise_fp8, quantise_fp8
from specqual.reference.nvfp4 import dequantise, quantise_nvfp4


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel and what it is given. `run` answers for several spans in one call, `define` for one span in a dtype,
    `cut` serves one span in two calls, the second from token `place` on; None where a span is one thing."""

    name: str
    spans: Sequence[Any]
    run: Callable[[Sequence[Any]], list[Tensor]]
    define: Callable[[Any, torch.dtype], Tensor]
    cut: Callable[[Any, int], Tensor] | None
    exact: bool = False  # nothing is rounded


def by_row(
    name: str,
    spans: Sequence[Tensor],
    kernel: Callable[[Tensor], Tensor],
    define: Callable[[Tensor, torch.dtype], Tensor],
) -> Operation:
    """A kernel that takes rows one by one, whatever span they are of."""

    def run(spans: Sequence[Tensor]) -> list[Tensor]:
        return list(kernel(torch.cat(list(spans))).split([len(span) for span in spans]))

    return Operation(name, spans, run, define, lambda x, place: torch.cat([kernel(x[part]) for part in halves(place)]))


def halves(place: int) -> tuple[slice, slice]:
    return slice(None, place), slice(place, None)


def joined(outputs: Tensor, state: Tensor) -> Tensor:
    return torch.cat([outputs.flatten(), state.flatten()])


def attended(span: Seen, dtype: torch.dtype, *, window: int | None, causal: bool) -> Tensor:
    """The definition of attention for one span, in a dtype."""
    query, key, value = (side.to(dtype) for side in (span.query, span.key, span.value))
    return attention(query, key, value, visible(span, window, causal), query.shape[2] ** -0.5)


def visible(span: Seen, window: int | None, causal: bool) -> Tensor:
    """Whether each query sees each key, [T, S]."""
    length = len(span.key)
    distance = torch.arange(length - len(span.query), length)[:, None] - torch.arange(length)
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() < window)


def stored(kind: Format, weight: Tensor, dtype: torch.dtype) -> Weight:
    """A weight [out, in] as a format stores it; dense in `dtype`."""
    if kind is Format.DENSE:
        return Weight(kind, {"weight": weight.to(dtype)})
    if kind is Format.FP8:
        codes, scale = quantise_fp8(weight)
        return Weight(kind, {"weight": codes, "weight_scale": scale})
    return Weight(kind, quantise_nvfp4(weight, divide=kind is Format.NVFP4_PACKED))


def decoded(weight: Weight, dtype: torch.dtype) -> Tensor:
    """What the parts of a weight stand for, [out, in], by the definition of its format."""
    parts = weight.parts
    if weight.format is Format.DENSE:
        return parts["weight"].to(dtype)
    if weight.format is Format.FP8:
        return dequantise_fp8(parts["weight"], parts["weight_scale"], dtype)
    if weight.format is Format.NVFP4:
        return dequantise(parts["weight"], parts["weight_scale"], parts["weight_scale_2"], dtype, divide=False)
    outer = parts["weight_global_scale"].reshape(())
    return dequantise(parts["weight_packed"], parts["weight_scale"], outer, dtype, divide=True)


def error(actual: Tensor, exact: Tensor) -> float:
    """The largest difference of two tensors of one shape; infinite where they have other shapes, or NaN is."""
    if actual.shape != exact.shape:
        return inf
    return float((actual.double() - exact.double()).abs().nan_to_num(inf).max()) if exact.numel() else 0.0


def spread(actual: Tensor, exact: Tensor) -> float:
    """The root mean square of their differences."""
    return float((actual.double() - exact.double()).square().mean().sqrt().nan_to_num(inf))


def torchs(span: Seen, window: int | None, causal: bool) -> Tensor:
    """Attention of one span by torch's own function, in the span's dtype: [T, heads, d]."""
    query, key, value = (side.transpose(0, 1)[None] for side in (span.query, span.key, span.value))
    seen = visible(span, window, causal)
    return scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)[0].transpose(0, 1)


def every_code(weight: Weight) -> Weight:
    """The same weight with every code in it: in the first rows of NVFP4 all pairs of codes and, in the rows behind
    them, all block scales; in FP8 every finite value. Dense weights stay as they are."""
    parts = {name: part.clone() for name, part in weight.parts.items()}
    if weight.format is Format.FP8:
        codes = parts["weight"].view(torch.uint8).flatten()
        codes[:256] = torch.arange(256, dtype=torch.uint8)
        codes[127::128][:2] = 0  # NaN
        parts["weight"] = codes.view(parts["weight"].shape).view(torch.float8_e4m3fn)
    elif weight.format is not Format.DENSE:
        name = "weight" if weight.format is Format.NVFP4 else "weight_packed"
        parts[name].view(-1)[:256] = torch.arange(256, dtype=torch.uint8)
        scales = parts["weight_scale"].view(torch.uint8).flatten()
        scales[-126:] = torch.arange(1, 127, dtype=torch.uint8)  # 2^-9 to 448
        parts["weight_scale"] = scales.view(parts["weight_scale"].shape).view(torch.float8_e4m3fn)
    return Weight(weight.format, parts)


def unlike(what: str, expected: Tensor, actual: Tensor) -> list[dict[str, Any]]:
    """A case for the first number that is not the same, bit for bit; none where all are."""
    if expected.shape != actual.shape:
        return [{"what": f"{what}: shape", "expected": list(expected.shape), "actual": list(actual.shape)}]
    apart = (expected != actual).flatten().nonzero()[:, 0].tolist()
    if not apart:
        return []
    one, two = (float(side.flatten()[apart[0]]) for side in (expected, actual))
    what = f"{what}: {len(apart)} of {expected.numel()} numbers, number {apart[0]}"
    return [{"what": what, "expected": one, "actual": two}]
