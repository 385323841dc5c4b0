"""Gates, element by element: silu(gate) * up in front of an MLP's last module, x * sigmoid(gate) behind attention."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case

LANES = 1024  # of one program


@triton.jit
def gated_kernel(x_ptr, gate_ptr, out_ptr, width, pitch, gate_pitch, SILU: tl.constexpr, LANES: tl.constexpr):
    row, lane = tl.program_id(1).to(tl.int64), tl.program_id(0) * LANES + tl.arange(0, LANES)
    real = lane < width
    x = tl.load(x_ptr + row * pitch + lane, mask=real, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_pitch + lane, mask=real, other=0.0).to(tl.float32)
    found = x * (1.0 / (1.0 + tl.exp(-gate)))
    if SILU:
        found *= gate
    tl.store(out_ptr + row * width + lane, found.to(out_ptr.dtype.element_ty), mask=real)


def launch(x: Tensor, gate: Tensor, out: Tensor | None, *, silu: bool) -> Tensor:
    rows, width = x.shape
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device) if out is None else out
    if rows:
        gated_kernel[(-(-width // LANES), rows)](
            x, gate, out, width, x.stride(0), gate.stride(0), SILU=silu, LANES=LANES, num_warps=4
        )
    return out


def silu_mul(gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """silu(gate) * up of rows [R, 2 I] that hold gate and then up: [R, I], computed in float32 and rounded once."""
    gate, up = gate_up.chunk(2, dim=1)
    return launch(up, gate, out, silu=True)


def sigmoid_mul(x: Tensor, gate: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * sigmoid(gate) of rows [R, D] each, computed in float32 and rounded once."""
    return launch(x, gate, out, silu=False)


def silu_mul_torch(gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    gate, up = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32)).chunk(2, dim=1)
    found = (gate * gate.sigmoid() * up).to(gate_up.dtype)
    return found if out is None else out.copy_(found)


def sigmoid_mul_torch(x: Tensor, gate: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same by its definition, in float32, or in float64 for rows of float64."""
    exact = torch.promote_types(x.dtype, torch.float32)
    found = (x.to(exact) * gate.to(exact).sigmoid()).to(x.dtype)
    return found if out is None else out.copy_(found)


AUDIT = tuple(
    Case(
        f"gated by {'silu' if silu else 'sigmoid'}",
        gated_kernel,
        {
            "x_ptr": "*bf16:16",
            "gate_ptr": "*bf16:16",
            "out_ptr": "*bf16:16",
            "width": "i32:16",
            "pitch": "i32:16",
            "gate_pitch": "i32:16",
        },
        {"SILU": silu, "LANES": LANES},
    )
    for silu in (True, False)
)
