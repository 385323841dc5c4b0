"""Linear modules in whatever format a checkpoint stores them: laid out once at load, then one call."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from specqual.contract.kernels import Weight
from specqual.contract.quantisation import Format

from ..formats import decode
from . import dense, fp8, nvfp4, nvfp4_layout
from .fp8 import Fp8
from .nvfp4_layout import Nvfp4
from .splits import Workspace

Held = Tensor | Fp8 | Nvfp4
"""What a kernel takes: a dense weight [outputs, inputs], or one laid out."""


def hold(weights: Sequence[Weight], dtype: torch.dtype) -> Held:
    """One module for several that read the same input, their outputs behind each other, for rows of `dtype`.

    FP8 and both layouts of NVFP4 stay as narrow as they are for rows of bfloat16, and are decoded for wider ones. All
    have the format of the first: `modules.module_of` names one that has not.
    """
    kind = weights[0].format
    if dtype is not torch.bfloat16:
        return torch.cat([decode(kind, weight.parts.__getitem__, dtype) for weight in weights])
    if kind is Format.FP8:
        scales = [each(weight, "weight_scale", "weight") for weight in weights]
        codes = torch.cat([weight.parts["weight"].view(torch.uint8) for weight in weights])
        return fp8.lay(codes.view(torch.float8_e4m3fn), torch.cat(scales))
    if kind is Format.DENSE:
        return torch.cat([weight.parts["weight"].to(dtype) for weight in weights])
    divide = kind is Format.NVFP4_PACKED
    packed, outer = ("weight_packed", "weight_global_scale") if divide else ("weight", "weight_scale_2")
    return nvfp4_layout.lay(
        torch.cat([weight.parts[packed] for weight in weights]),
        torch.cat([weight.parts["weight_scale"].view(torch.uint8) for weight in weights]).view(torch.float8_e4m3fn),
        torch.cat([each(weight, outer, packed) for weight in weights]),
        divide=divide,
    )


def each(weight: Weight, scale: str, codes: str) -> Tensor:
    """A tensor's scale, once for each of its outputs."""
    return weight.parts[scale].float().reshape(1).expand(len(weight.parts[codes]))


def module_of(weight: Held) -> Any:
    return fp8 if isinstance(weight, Fp8) else nvfp4 if isinstance(weight, Nvfp4) else dense


def linear(
    x: Tensor,
    weight: Held,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Workspace | None = None,
) -> Tensor:
    """Rows x [R, inputs] times a weight, plus a bias [outputs]: [R, outputs] in `dtype` or x's own; sums in float32."""
    run: Callable[..., Tensor] = module_of(weight).linear
    return run(x, weight, bias, out=out, dtype=dtype, workspace=workspace)


def linear_torch(
    x: Tensor,
    weight: Held,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Workspace | None = None,
) -> Tensor:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    run: Callable[..., Tensor] = module_of(weight).linear_torch
    return run(x, weight, bias, out=out, dtype=dtype, workspace=workspace)
