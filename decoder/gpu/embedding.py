"""Rows of the embedding, picked by ids that lie on the device."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case

LANES = 1024  # of one program


@triton.jit
def embedding_kernel(ids_ptr, table_ptr, out_ptr, width, scale, LANES: tl.constexpr):
    row, lane = tl.program_id(1).to(tl.int64), tl.program_id(0) * LANES + tl.arange(0, LANES)
    real = lane < width
    token = tl.load(ids_ptr + row).to(tl.int64)
    found = tl.load(table_ptr + token * width + lane, mask=real, other=0.0).to(tl.float32) * scale
    tl.store(out_ptr + row * width + lane, found.to(out_ptr.dtype.element_ty), mask=real)


def embed(ids: Tensor, table: Tensor, scale: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """Rows [R, H] of a table [V, H] by ids [R], times a scale, in the table's dtype. Ids are not checked."""
    rows, width = len(ids), table.shape[1]
    out = torch.empty(rows, width, dtype=table.dtype, device=table.device) if out is None else out
    if rows:
        embedding_kernel[(-(-width // LANES), rows)](ids, table, out, width, scale, LANES=LANES, num_warps=4)
    return out


def embed_torch(ids: Tensor, table: Tensor, scale: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """The same by its definition."""
    found = table[ids.long()]
    found = (found.to(torch.promote_types(found.dtype, torch.float32)) * scale).to(table.dtype)
    return found if out is None else out.copy_(found)


AUDIT = (
    Case(
        "embedding",
        embedding_kernel,
        {"ids_ptr": "*i32:16", "table_ptr": "*bf16:16", "out_ptr": "*bf16:16", "width": "i32:16", "scale": "fp32"},
        {"LANES": LANES},
    ),
)
