"""Import this before a kernel: without a GPU, kernels run in Triton's interpreter on CPU tensors (see conftest.py)."""

import pytest
import torch

from specqual.decoder.gpu.interpreter import interpret

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton")
if DEVICE == "cpu":
    interpret()


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)
