"""Import this before a kernel: without a GPU, kernels run in Triton's interpreter on CPU tensors."""

import pytest
import torch

from specqual.decoder.gpu.interpreter import interpret

pytest.importorskip("triton") if torch.cuda.is_available() else None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if DEVICE == "cpu":
    interpret()


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)
