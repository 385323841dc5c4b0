"""Weights turned into NVFP4 when they are loaded, by ModelOpt's rule, wherever they lie."""

import torch
from torch import Tensor

from .formats import BLOCK, LARGEST

SMALLEST = 2.0**-9  # of the positive e4m3 numbers
EDGES = ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))
"""Where one e2m1 code ends and the next begins; and whether the edge itself, a tie, belongs to the next, even one."""


def codes_of(x: Tensor) -> Tensor:
    """The e2m1 codes (uint8, 0 to 15) nearest to x, ties to the even code, saturating at 6; shape kept."""
    size, code = x.abs(), torch.zeros(x.shape, dtype=torch.uint8, device=x.device)
    for edge, reached in EDGES:
        code += size >= edge if reached else size > edge
    return code | torch.signbit(x).to(torch.uint8) << 3


def pack(codes: Tensor) -> Tensor:
    """Codes [outputs, inputs] as bytes [outputs, inputs / 2], even inputs low."""
    return codes[:, 0::2] | codes[:, 1::2] << 4


def to_nvfp4(weight: Tensor) -> dict[str, Tensor]:
    """A weight [outputs, inputs] in the parts that files hold it in, by suffix.

    `weight` are codes [outputs, inputs / 2], `weight_scale` e4m3 block scales [outputs, inputs / 16], `weight_scale_2`
    is the tensor's scale. Computed in float32. ValueError if `inputs` is not a multiple of 16.
    """
    outputs, inputs = weight.shape
    if inputs % BLOCK:
        raise ValueError(f"weight: the input axis must be a multiple of {BLOCK}, got {inputs}")
    blocks = weight.float().reshape(outputs, -1, BLOCK)
    largest = blocks.abs().amax(-1)
    whole, six = largest.max(), blocks.new_tensor(6)  # by a Python number, CUDA would multiply with its reciprocal
    outer = torch.where(whole > 0, whole / (six * LARGEST), 1.0)
    scale = (largest / six / outer).clamp(SMALLEST, LARGEST).to(torch.float8_e4m3fn)
    scale = torch.where(largest == 0, torch.ones_like(largest), scale.float())
    codes = codes_of(blocks / (scale * outer)[..., None]).flatten(1)
    return {"weight": pack(codes), "weight_scale": scale.to(torch.float8_e4m3fn), "weight_scale_2": outer}
